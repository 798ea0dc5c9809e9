-- The ledger in SQLite. The triggers are the fence: they hold for every client
-- of the file. RAISE(IGNORE) drops the write but keeps what the trigger has
-- written, so that a refusal is on record although nothing else happened.

-- Who may write: one row.
CREATE TABLE claim (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    token  INTEGER NOT NULL,
    term   INTEGER NOT NULL,
    member TEXT NOT NULL,
    site   TEXT NOT NULL
) STRICT;
INSERT INTO claim VALUES (1, 0, 0, '', '');

-- Who could write, and from which entry on.
CREATE TABLE claims (
    token          INTEGER PRIMARY KEY,
    term           INTEGER NOT NULL,
    member         TEXT NOT NULL,
    site           TEXT NOT NULL,
    entries_before INTEGER NOT NULL,
    claimed_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;

-- The bookings. SQLite numbers them: writers come one after another, a refused
-- one takes no number.
CREATE TABLE entries (
    number       INTEGER PRIMARY KEY,
    order_id     TEXT NOT NULL UNIQUE,
    account      TEXT NOT NULL,
    currency     TEXT NOT NULL,
    amount_cents INTEGER NOT NULL,
    token        INTEGER NOT NULL,
    member       TEXT NOT NULL,
    booked_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;

-- What the bookings add up to.
CREATE TABLE accounts (
    account       TEXT NOT NULL,
    currency      TEXT NOT NULL,
    balance_cents INTEGER NOT NULL,
    PRIMARY KEY (account, currency)
) STRICT;

-- What was refused, to whom, and because of which claim.
CREATE TABLE refusals (
    id            INTEGER PRIMARY KEY,
    what          TEXT NOT NULL CHECK (what IN ('claim', 'booking')),
    token         INTEGER NOT NULL,
    member        TEXT NOT NULL,
    claimed_token INTEGER NOT NULL,
    order_id      TEXT,
    refused_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;

-- The claimed token never falls, and belongs to one member.
CREATE TRIGGER refuse_older_claim BEFORE UPDATE ON claim
WHEN NEW.token < OLD.token OR (NEW.token = OLD.token AND NEW.member <> OLD.member)
BEGIN
    INSERT INTO refusals (what, token, member, claimed_token)
    VALUES ('claim', NEW.token, NEW.member, OLD.token);
    SELECT RAISE(IGNORE);
END;

CREATE TRIGGER record_claim AFTER UPDATE ON claim
BEGIN
    INSERT INTO claims (token, term, member, site, entries_before)
    VALUES (NEW.token, NEW.term, NEW.member, NEW.site, (SELECT coalesce(max(number), 0) FROM entries))
    ON CONFLICT (token) DO NOTHING;
END;

CREATE TRIGGER keep_claim BEFORE DELETE ON claim
BEGIN
    SELECT RAISE(ABORT, 'the claim can only be raised');
END;

-- Only the claimed token books.
CREATE TRIGGER refuse_unclaimed_booking BEFORE INSERT ON entries
WHEN NEW.token <> (SELECT token FROM claim)
BEGIN
    INSERT INTO refusals (what, token, member, claimed_token, order_id)
    VALUES ('booking', NEW.token, NEW.member, (SELECT token FROM claim), NEW.order_id);
    SELECT RAISE(IGNORE);
END;

-- The entry moves the balance, so that neither can be written without the other.
CREATE TRIGGER move_balance AFTER INSERT ON entries
BEGIN
    INSERT INTO accounts (account, currency, balance_cents)
    VALUES (NEW.account, NEW.currency, NEW.amount_cents)
    ON CONFLICT (account, currency) DO UPDATE SET balance_cents = balance_cents + excluded.balance_cents;
END;

CREATE TRIGGER keep_entries_as_they_are BEFORE UPDATE ON entries
BEGIN
    SELECT RAISE(ABORT, 'entries are final');
END;

CREATE TRIGGER keep_all_entries BEFORE DELETE ON entries
BEGIN
    SELECT RAISE(ABORT, 'entries are final');
END;
