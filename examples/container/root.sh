#!/bin/sh
# Makes the root of an image: ROOT gets the PROGRAMs at their own paths with the libraries that they need, the certificates of the
# authorities that the host trusts, a user, and the directories that are mounted. Nothing else.
#
#   root.sh ROOT PROGRAM...
set -eu
root=$1
shift

mkdir -p "$root/etc/ssl/certs" "$root/etc/dr-worker" "$root/dev" "$root/proc" "$root/var/lib/dr-worker" "$root/tmp"
printf 'root:x:0:0::/:/sbin/nologin\ndr-worker:x:65532:65532::/var/lib/dr-worker:/sbin/nologin\n' > "$root/etc/passwd"
printf 'root:x:0:\ndr-worker:x:65532:\n' > "$root/etc/group"
printf 'hosts: files dns\n' > "$root/etc/nsswitch.conf"
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
fi

# A file at its own path. What is in /bin and /lib is in /usr, where these are links.
put() {
    path=$(readlink -f "$(dirname "$1")")/$(basename "$1")
    mkdir -p "$root$(dirname "$path")"
    cp -L "$path" "$root$path"
}
for link in bin lib lib64 sbin; do
    if [ -L "/$link" ]; then
        mkdir -p "$root/usr/$link"
        ln -sfn "usr/$link" "$root/$link"
    fi
done
for program in "$@"; do
    put "$program"
    # It fails for a program without libraries too.
    libraries=$(ldd "$program" 2>&1) || true
    case $libraries in *'not found'*) printf '%s\n' "$libraries" >&2; exit 1 ;; esac
    printf '%s\n' "$libraries" | grep -o '/[^ ]*' | while read -r library; do put "$library"; done
done
# Names are looked up by these, which no program names.
for library in libnss_files.so.2 libnss_dns.so.2 libresolv.so.2; do
    found=$(ldconfig -p 2>/dev/null | grep -o "/.*/$library\$" | head -n 1)
    if [ -n "$found" ]; then put "$found"; fi
done
