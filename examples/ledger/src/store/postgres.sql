-- The ledger in PostgreSQL. The triggers are the fence: they hold for every
-- client of the database. A BEFORE trigger that returns NULL drops the row but
-- keeps what the trigger has written, so that a refusal is on record although
-- nothing else happened.

CREATE SCHEMA ledger;

CREATE TABLE ledger.layout (version bigint NOT NULL);

-- Who may write: one row.
CREATE TABLE ledger.claim (
    id     bigint PRIMARY KEY CHECK (id = 1),
    token  bigint NOT NULL,
    term   bigint NOT NULL,
    member text NOT NULL,
    site   text NOT NULL
);
INSERT INTO ledger.claim VALUES (1, 0, 0, '', '');

-- Who could write, and from which entry on.
CREATE TABLE ledger.claims (
    token          bigint PRIMARY KEY,
    term           bigint NOT NULL,
    member         text NOT NULL,
    site           text NOT NULL,
    entries_before bigint NOT NULL,
    claimed_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The bookings, numbered by the trigger below.
CREATE TABLE ledger.entries (
    number       bigint PRIMARY KEY,
    order_id     text NOT NULL UNIQUE,
    account      text NOT NULL,
    currency     text NOT NULL,
    amount_cents bigint NOT NULL,
    token        bigint NOT NULL,
    member       text NOT NULL,
    booked_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What the bookings add up to.
CREATE TABLE ledger.accounts (
    account       text NOT NULL,
    currency      text NOT NULL,
    balance_cents bigint NOT NULL,
    PRIMARY KEY (account, currency)
);

-- What was refused, to whom, and because of which claim.
CREATE TABLE ledger.refusals (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    what          text NOT NULL CHECK (what IN ('claim', 'booking')),
    token         bigint NOT NULL,
    member        text NOT NULL,
    claimed_token bigint NOT NULL,
    order_id      text,
    refused_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The claimed token never falls, and belongs to one member. PostgreSQL locks the
-- row before it calls this, so every booking that was accepted under the old
-- token has been committed by then, and is counted.
CREATE FUNCTION ledger.raise_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.token < OLD.token OR (NEW.token = OLD.token AND NEW.member <> OLD.member) THEN
        INSERT INTO ledger.refusals (what, token, member, claimed_token)
        VALUES ('claim', NEW.token, NEW.member, OLD.token);
        RETURN NULL;
    END IF;
    INSERT INTO ledger.claims (token, term, member, site, entries_before)
    VALUES (NEW.token, NEW.term, NEW.member, NEW.site, (SELECT coalesce(max(number), 0) FROM ledger.entries))
    ON CONFLICT (token) DO NOTHING;
    RETURN NEW;
END $$;
CREATE TRIGGER raise_claim BEFORE UPDATE ON ledger.claim
FOR EACH ROW EXECUTE FUNCTION ledger.raise_claim();

-- Only the claimed token books. The lock on the claim is held until the booking
-- is committed, so no newer claim gets in between the check and the write. It is
-- an exclusive one, so that bookings are numbered one after another.
CREATE FUNCTION ledger.check_booking() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    claimed bigint;
BEGIN
    SELECT token INTO STRICT claimed FROM ledger.claim FOR UPDATE;
    IF NEW.token <> claimed THEN
        INSERT INTO ledger.refusals (what, token, member, claimed_token, order_id)
        VALUES ('booking', NEW.token, NEW.member, claimed, NEW.order_id);
        RETURN NULL;
    END IF;
    SELECT coalesce(max(number), 0) + 1 INTO NEW.number FROM ledger.entries;
    RETURN NEW;
END $$;
CREATE TRIGGER check_booking BEFORE INSERT ON ledger.entries
FOR EACH ROW EXECUTE FUNCTION ledger.check_booking();

-- The entry moves the balance, so that neither can be written without the other.
CREATE FUNCTION ledger.move_balance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ledger.accounts AS held (account, currency, balance_cents)
    VALUES (NEW.account, NEW.currency, NEW.amount_cents)
    ON CONFLICT (account, currency) DO UPDATE SET balance_cents = held.balance_cents + excluded.balance_cents;
    RETURN NULL;
END $$;
CREATE TRIGGER move_balance AFTER INSERT ON ledger.entries
FOR EACH ROW EXECUTE FUNCTION ledger.move_balance();

CREATE FUNCTION ledger.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is not to be changed in this way', TG_TABLE_NAME;
END $$;
CREATE TRIGGER keep_claim BEFORE DELETE OR TRUNCATE ON ledger.claim
FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();
CREATE TRIGGER keep_entries BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.entries
FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();
