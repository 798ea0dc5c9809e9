CREATE ROLE replicator LOGIN REPLICATION PASSWORD :'password' IN ROLE pg_checkpoint;
GRANT EXECUTE ON FUNCTION pg_ls_dir(text, boolean, boolean), pg_stat_file(text, boolean), pg_read_binary_file(text),
    pg_read_binary_file(text, bigint, bigint, boolean) TO replicator;
CREATE SCHEMA dr;
GRANT USAGE ON SCHEMA dr TO PUBLIC;
CREATE TABLE dr.leadership (token bigint PRIMARY KEY, term bigint, member text, since timestamptz DEFAULT now());
GRANT SELECT ON dr.leadership TO PUBLIC;
INSERT INTO dr.leadership VALUES (0, 0, 'init');
CREATE FUNCTION dr.require(newest bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE mine bigint := (SELECT max(token) FROM dr.leadership);
BEGIN
    IF mine < newest THEN RAISE 'this server has the token %, and a newer one was seen: %', mine, newest; END IF;
    RETURN mine;
END $$;
