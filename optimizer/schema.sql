-- run.sqlite: everything a search has seen. Candidate sources lie beside it in sources/<sha>.<ext>.
CREATE TABLE schema_version (version INTEGER NOT NULL);

-- A task as the search saw it. `workloads` is a digest of exact shapes: op_key abstracts them.
CREATE TABLE tasks (
  op_key  TEXT PRIMARY KEY,
  task_id TEXT NOT NULL,
  family  TEXT NOT NULL
) WITHOUT ROWID;

-- One search: everything that must be equal for its turns to be comparable and resumable.
CREATE TABLE searches (
  id         INTEGER PRIMARY KEY,
  op_key     TEXT NOT NULL REFERENCES tasks (op_key),
  policy     TEXT NOT NULL,
  language   TEXT NOT NULL,
  machine    TEXT NOT NULL,
  settings   TEXT NOT NULL,  -- hash over judge settings and exact workloads
  seed       INTEGER NOT NULL,
  settings_json TEXT NOT NULL,
  planned_trajectories INTEGER NOT NULL,  -- of the latest request: the denominators of the scores
  planned_turns        INTEGER NOT NULL,
  created    REAL NOT NULL,
  UNIQUE (op_key, policy, language, machine, settings, seed)
);

CREATE TABLE trajectories (
  search     INTEGER NOT NULL REFERENCES searches (id),
  trajectory INTEGER NOT NULL,
  state      TEXT NOT NULL,  -- open, exhausted, failed
  detail     TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (search, trajectory)
) WITHOUT ROWID;

CREATE TABLE candidates (
  sha      TEXT PRIMARY KEY,
  language TEXT NOT NULL,
  created  REAL NOT NULL
) WITHOUT ROWID;

-- One judgement. `body` is the whole verdict as JSON, raw timing samples included.
CREATE TABLE verdicts (
  id       INTEGER PRIMARY KEY,
  op_key   TEXT NOT NULL REFERENCES tasks (op_key),
  sha      TEXT NOT NULL REFERENCES candidates (sha),
  machine  TEXT NOT NULL,
  settings TEXT NOT NULL,
  outcome  TEXT NOT NULL,
  speedup  REAL,
  roofline REAL,
  seconds  REAL NOT NULL,
  created  REAL NOT NULL,
  body     TEXT NOT NULL
);
-- Never judged twice; a failure of the judge itself is kept as evidence but does not count as judged.
CREATE UNIQUE INDEX verdict_cache ON verdicts (op_key, sha, machine, settings) WHERE outcome <> 'sandbox_failed';

-- A turn exists from the moment its completion arrived; `done` is set with its verdict or parse failure.
CREATE TABLE turns (
  search     INTEGER NOT NULL,
  trajectory INTEGER NOT NULL,
  turn       INTEGER NOT NULL,
  sha        TEXT REFERENCES candidates (sha),
  verdict    INTEGER REFERENCES verdicts (id),
  reused     INTEGER NOT NULL DEFAULT 0,  -- the verdict came from the cache
  failure    TEXT NOT NULL DEFAULT '',    -- why no candidate could be read from the completion
  summary    TEXT NOT NULL DEFAULT '',
  notes      TEXT NOT NULL DEFAULT '{}',
  done       INTEGER NOT NULL DEFAULT 0,
  created    REAL NOT NULL,
  PRIMARY KEY (search, trajectory, turn),
  FOREIGN KEY (search, trajectory) REFERENCES trajectories (search, trajectory)
) WITHOUT ROWID;

-- The raw completion of a turn, apart from `turns` so that reports never read it.
-- token_ids: little-endian int32, logprobs: little-endian float32, where the policy gave them.
CREATE TABLE completions (
  search      INTEGER NOT NULL,
  trajectory  INTEGER NOT NULL,
  turn        INTEGER NOT NULL,
  seed        INTEGER NOT NULL,
  stop_reason TEXT NOT NULL,
  seconds     REAL NOT NULL,
  text        TEXT NOT NULL,
  token_ids   BLOB,
  logprobs    BLOB,
  PRIMARY KEY (search, trajectory, turn),
  FOREIGN KEY (search, trajectory, turn) REFERENCES turns (search, trajectory, turn)
) WITHOUT ROWID;
