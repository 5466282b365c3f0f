package outboxdb

// lanesOfStats returns the lanes. Each has its position, so that no statistic reads published rows. It also has
// passed_to: every unsent row with a number up to this belongs to a paused tenant. The number open_to, which the
// owner of the lane has stored, counts as long as the owner's lease. So a row of a transaction that was open counts
// when the owner has found it, or a lease after its commit at the latest.
const lanesOfStats = `
lanes AS MATERIALIZED (
	SELECT l.lane, l.owner, l.owner IS NULL OR l.lease_until < clock_timestamp() AS free, 
		greatest(c.sent, CASE WHEN l.lease_until >= clock_timestamp() THEN l.open_to END) AS sent, c.ahead,
		CASE WHEN EXISTS (SELECT FROM {schema}.outbox_tenant WHERE paused_at IS NOT NULL AND resumed_at IS NULL) THEN l.passed_to ELSE 0 END AS passed_to
	FROM {schema}.outbox_lane l JOIN {schema}.outbox_cursor c ON c.lane = l.lane)`

// unsentOf is the condition that a row o of outbox is in the lane and unsent.
const unsentOf = `o.lane = l.lane AND o.seq > l.sent AND NOT o.seq <@ l.ahead`

// pausesOfStats returns the tenants that are paused, and the tenants that were resumed within a day, whose rows count
// as waiting since then.
const pausesOfStats = `
pauses AS MATERIALIZED (
	SELECT tenant_id, resumed_at, resumed_at IS NULL AS paused FROM {schema}.outbox_tenant
	WHERE paused_at IS NOT NULL AND (resumed_at IS NULL OR resumed_at > clock_timestamp() - interval '1 day'))`

// headOfLane is the first unsent row of a lane, if it waits for nothing but a relay. A lane's numbers and times are drawn together, so no row behind it
// has waited longer, and none needs a look.
const headOfLane = `
	LEFT JOIN LATERAL (
		SELECT CASE WHEN o.not_before IS NULL AND NOT EXISTS (SELECT FROM pauses p WHERE p.tenant_id = o.tenant_id) THEN o.created_at END AS since
		FROM (SELECT o.created_at, o.not_before, o.tenant_id FROM {schema}.outbox o
			WHERE ` + unsentOf + ` AND o.seq > l.passed_to ORDER BY o.seq LIMIT 1) o) head ON true`

// The number of rows at the front of a lane that are looked at for the age. It is larger while a tenant is paused,
// because rows of that tenant may stand in front of all others. Rows that the relay has passed are not looked at.
const (
	FrontOfLane       = 200
	FrontOfPausedLane = 500
)

// Statistics costs a few index look-ups per lane, and counts with a bound: a full count over a backlog of millions
// would itself be a load on the database. Limits are literals for the reason given at lanedb.fetchRows, and the time
// is asked for once for the reason given at lanedb.dueRows. The statement is planned anew each time, because a plan
// for a short backlog would sort a long one.
//
// Three kinds of rows do not count for the age: rows that wait for their own time, rows behind such a row in their
// key, and rows of paused tenants. If the head of a lane is such a row, the first rows are looked at, as many as FrontOfLane says; the
// last of them counts whatever it waits for.
const Statistics = `
WITH ` + lanesOfStats + `,` + pausesOfStats + `,
heads AS MATERIALIZED (
	SELECT l.lane, l.free, least(head.since, fresh.since, waiting.since, due.since) AS since
	FROM lanes l` + headOfLane + `
	LEFT JOIN LATERAL (
		SELECT min(CASE WHEN o.n = %[1]d THEN o.created_at
			WHEN p.paused THEN NULL
			WHEN o.not_before IS NULL OR o.not_before <= (SELECT clock_timestamp()) THEN greatest(o.created_at, o.not_before, p.resumed_at) END) AS since
		FROM (
			SELECT o.created_at, o.not_before, o.tenant_id, row_number() OVER (ORDER BY o.seq) AS n FROM {schema}.outbox o
			WHERE ` + unsentOf + ` AND o.seq > l.passed_to AND head.since IS NULL ORDER BY o.seq LIMIT %[1]d) o
		LEFT JOIN pauses p USING (tenant_id)) fresh ON true
	LEFT JOIN LATERAL (
		SELECT greatest(k.created_at, (SELECT p.resumed_at FROM pauses p WHERE p.tenant_id = k.tenant_id)) AS since FROM (
			SELECT h.lane, h.ordering_key, h.created_at, h.tenant_id, row_number() OVER (ORDER BY h.seq) AS n FROM {schema}.outbox_held h
			WHERE h.lane = l.lane AND h.not_before IS NULL ORDER BY h.seq LIMIT %[1]d) k
		WHERE k.n = %[1]d OR NOT EXISTS (SELECT FROM pauses p WHERE p.tenant_id = k.tenant_id AND p.paused) AND NOT EXISTS (
			SELECT FROM (
				SELECT x.lane, x.ordering_key, x.not_before, x.retry_count FROM {schema}.outbox_held x
				WHERE (x.lane, x.ordering_key, x.seq) >= (k.lane, k.ordering_key, 0) ORDER BY x.lane, x.ordering_key, x.seq LIMIT 1) f
			WHERE f.lane = k.lane AND f.ordering_key = k.ordering_key AND f.retry_count = 0 AND f.not_before > (SELECT clock_timestamp()))
		LIMIT 1) waiting ON true
	LEFT JOIN LATERAL (
		SELECT greatest(d.retry_after, (SELECT p.resumed_at FROM pauses p WHERE p.tenant_id = d.tenant_id)) AS since FROM (
			SELECT h.retry_after, h.tenant_id FROM {schema}.outbox_held h
			WHERE h.lane = l.lane AND h.retry_after <= (SELECT clock_timestamp()) ORDER BY h.retry_after LIMIT %[1]d) d
		WHERE NOT EXISTS (SELECT FROM pauses p WHERE p.tenant_id = d.tenant_id AND p.paused) LIMIT 1) due ON true),
held AS MATERIALIZED (
	SELECT h.not_before > (SELECT clock_timestamp()) AND h.retry_count = 0 AS delayed
	FROM lanes l CROSS JOIN LATERAL (
		SELECT h.not_before, h.retry_count FROM {schema}.outbox_held h
		WHERE h.lane = l.lane AND h.retry_after > (SELECT clock_timestamp()) AND h.retry_after < 'infinity'
		ORDER BY h.retry_after LIMIT 10001) h LIMIT 10001),
refused AS MATERIALIZED (
	SELECT h.retry_count, CASE WHEN p.paused THEN NULL ELSE greatest(h.created_at, h.not_before, p.resumed_at) END AS since
	FROM lanes l CROSS JOIN LATERAL (
		SELECT h.retry_count, h.created_at, h.not_before, h.tenant_id FROM {schema}.outbox_held h
		WHERE h.lane = l.lane AND h.retry_count > 0 ORDER BY h.retry_count DESC LIMIT 10001) h
	LEFT JOIN pauses p USING (tenant_id) LIMIT 10001)
SELECT count(*), count(*) FILTER (WHERE free), count(since), coalesce(extract(epoch FROM clock_timestamp()
		- least(min(since), (SELECT min(r.since) FROM refused r))), 0)::float8,
	(SELECT count(*) FROM held), (SELECT count(*) FROM held WHERE delayed),
	(SELECT count(*) FROM refused), (SELECT coalesce(max(retry_count), 0) FROM refused),
	(SELECT count(*) FROM (SELECT FROM {schema}.outbox_block LIMIT 10000) x),
	` + backlogOf + `, ` + rowsOf + `'{schema}.outbox_held'::regclass),
	` + rowsOf + `'{schema}.outbox_dead'::regclass),
	(SELECT coalesce(i.reltuples / nullif(greatest(h.reltuples, 0), 0), 1)::float8 FROM pg_class i, pg_class h
		WHERE i.oid = '{schema}.outbox_held_waiting'::regclass AND h.oid = '{schema}.outbox_held'::regclass),
	(SELECT coalesce(sum(greatest(pg_stat_get_live_tuples(c.oid), c.reltuples::bigint, 0)), 0)::bigint FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent IN ('{schema}.outbox'::regclass, '{schema}.outbox_sent'::regclass)),
	(SELECT count(*) FROM generate_series(0, 1) ahead WHERE to_regclass('{schema}.outbox_'
		|| to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + ahead, 'YYYYMMDD')) IS NULL),
	` + oldestSnapshot + `,
	(SELECT count(*) FROM pauses WHERE paused)
FROM heads`

// backlogOf estimates the number of unsent rows of outbox. If a lane has more than 150, it is assumed that all of
// them lie as densely among the numbers, up to the last row of the lane, as the first 150.
const backlogOf = `(SELECT coalesce(sum(CASE WHEN d.n < 150 THEN d.n
		ELSE (150.0 / (d.last - d.first + 1) * (d.latest - d.first + 1))::bigint END), 0)::bigint
	FROM lanes l CROSS JOIN LATERAL (
		SELECT count(*) AS n, min(o.seq) AS first, max(o.seq) AS last,
			(SELECT o.seq FROM {schema}.outbox o WHERE o.lane = l.lane AND o.seq > l.sent ORDER BY o.seq DESC LIMIT 1) AS latest
		FROM (SELECT o.seq FROM {schema}.outbox o WHERE ` + unsentOf + ` ORDER BY o.seq LIMIT 150) o) d)`

// rowsOf returns PostgreSQL's own estimate of the rows of a table: by its counters of inserts and deletes, or by its
// last VACUUM or ANALYZE if a crash has cleared the counters.
const rowsOf = `(SELECT CASE WHEN pg_stat_get_live_tuples(c.oid) > 10000 THEN pg_stat_get_live_tuples(c.oid)
		ELSE greatest(c.reltuples, 0)::bigint END FROM pg_class c WHERE c.oid = `

// oldestSnapshot returns the seconds for which VACUUM and the relay's low-water mark have been held up. Sessions of
// other roles are visible only with the rights of pg_read_all_stats.
const oldestSnapshot = `coalesce(extract(epoch FROM clock_timestamp() - least(
		(SELECT min(a.xact_start) FROM pg_stat_activity a WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
			AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL AND a.datname = current_database())),
		(SELECT min(p.prepared) FROM pg_prepared_xacts p))), 0)::float8`

// shares counts rows by topic and tenant. With CountAll it counts up to 10,001 rows of each kind. With CountFront it looks at the
// first 150 rows of each lane, for the shares of a backlog that is too long to count.
const (
	CountAll   = sharesOfLanes + `10001` + sharesOfHeld + `10001` + sharesOfDead
	CountFront = sharesOfLanes + `150` + sharesOfHeld + `150` + sharesOfDead

	sharesOfLanes = `
WITH ` + lanesOfStats + `,` + pausesOfStats + `
SELECT x.state, x.topic, x.tenant_id, x.n, coalesce(p.paused, false) FROM (
	SELECT x.state, x.topic, x.tenant_id, count(*) AS n FROM (
	(SELECT CASE WHEN o.not_before > (SELECT clock_timestamp()) THEN 'delayed' ELSE 'new' END AS state, o.topic, o.tenant_id
	FROM lanes l CROSS JOIN LATERAL (
		SELECT o.not_before, o.topic, o.tenant_id FROM {schema}.outbox o
		WHERE ` + unsentOf + ` ORDER BY o.seq LIMIT `
	sharesOfHeld = `) o LIMIT 10001)
	UNION ALL
	(SELECT 'held', h.topic, h.tenant_id
	FROM lanes l CROSS JOIN LATERAL (
		SELECT h.topic, h.tenant_id FROM {schema}.outbox_held h
		WHERE h.lane = l.lane AND (h.not_before IS NULL OR h.retry_count > 0) ORDER BY h.seq LIMIT `
	sharesOfDead = `) h LIMIT 10001)
	UNION ALL
	(SELECT 'dead', d.topic, d.tenant_id FROM {schema}.outbox_dead d LIMIT 10001)) x
	GROUP BY x.state, x.topic, x.tenant_id) x
LEFT JOIN pauses p USING (tenant_id)`
)

// Menu counts up to 1,001 rows of each kind: dead letters, refused events, delayed events that a relay has seen, and paused tenants. It runs for each page of
// the console, so each count ends early and reads an index or the beginning of a table.
const Menu = `
SELECT (SELECT count(*) FROM (SELECT FROM {schema}.outbox_dead LIMIT 1001) x),
	(SELECT count(*) FROM (
		SELECT FROM {schema}.outbox_lane l CROSS JOIN LATERAL (
			SELECT FROM {schema}.outbox_held h WHERE h.lane = l.lane AND h.retry_count > 0 LIMIT 1001) h LIMIT 1001) x),
	(SELECT count(*) FROM (
		SELECT FROM {schema}.outbox_lane l CROSS JOIN LATERAL (
			SELECT FROM {schema}.outbox_held h
			WHERE h.lane = l.lane AND h.retry_after < 'infinity' AND h.not_before IS NOT NULL AND h.retry_count = 0 AND h.ordering_key IS NULL
			ORDER BY h.retry_after LIMIT 1001) h LIMIT 1001) x),
	(SELECT count(*) FROM {schema}.outbox_tenant WHERE paused_at IS NOT NULL AND resumed_at IS NULL)`

// FailingRows goes from one blocked key to the next, and reads the first row of each. Rows without a key are not
// blocked: for them, the next 100 rows that become due in each lane are looked at, because there may be millions of
// delayed rows behind them.
//
// A head that waits at infinity is stalled. No relay makes that, see the disorders of outbox.Store.State; the row is listed without a time.
//
// The rows are compared as in HeadOfKey.
const FailingRows = `
SELECT {columns but payload}, NULL::bytea AS payload` + RowEnd + `, nullif(retry_after, 'infinity'), coalesce(error_message, ''), fingerprint FROM (
	(SELECT h.* FROM (
		SELECT b.lane, b.ordering_key FROM {schema}.outbox_block b WHERE b.state = 'failed' ORDER BY b.lane, b.ordering_key LIMIT $1) b
	CROSS JOIN LATERAL (
		SELECT x.* FROM {schema}.outbox_held x
		WHERE (x.lane, x.ordering_key, x.seq) >= (b.lane, b.ordering_key, 0) ORDER BY x.lane, x.ordering_key, x.seq LIMIT 1) h
	WHERE h.lane = b.lane AND h.ordering_key = b.ordering_key)
	UNION ALL
	(SELECT h.* FROM {schema}.outbox_lane l CROSS JOIN LATERAL (
		SELECT x.* FROM {schema}.outbox_held x WHERE x.lane = l.lane ORDER BY x.lane, x.retry_after, x.seq LIMIT 100) h
	WHERE h.ordering_key IS NULL AND h.retry_count > 0 LIMIT $1)) f
ORDER BY created_at, seq LIMIT $1`

// OldestOverdue looks at the head of each lane, at the first 100 unsent rows if the head waits for its time or belongs to a paused tenant, and at the
// first 100 held rows that are due. It returns two lanes at most: of the lanes with a relay, the lane whose row waits longest, and the same of the lanes
// without a relay.
const OldestOverdue = `
WITH ` + lanesOfStats + `,` + pausesOfStats + `
SELECT DISTINCT ON (x.free) NOT x.free, coalesce(x.owner, ''), x.since, coalesce(r.error, ''), r.failed_at, r.failing_since,
	coalesce(r.failing_topic, '') FROM (
	SELECT l.owner, l.free, least(head.since, fresh.since, due.since) AS since
	FROM lanes l` + headOfLane + `
	LEFT JOIN LATERAL (
		SELECT min(greatest(o.created_at, o.not_before, p.resumed_at)) AS since FROM (
			SELECT o.created_at, o.not_before, o.tenant_id FROM {schema}.outbox o
			WHERE ` + unsentOf + ` AND o.seq > l.passed_to AND head.since IS NULL ORDER BY o.seq LIMIT 100) o LEFT JOIN pauses p USING (tenant_id)
		WHERE p.paused IS NOT TRUE) fresh ON true
	LEFT JOIN LATERAL (
		SELECT min(greatest(h.retry_after, p.resumed_at)) AS since FROM (
			SELECT h.retry_after, h.tenant_id FROM {schema}.outbox_held h
			WHERE h.lane = l.lane AND h.retry_after <= (SELECT clock_timestamp()) ORDER BY h.retry_after LIMIT 100) h LEFT JOIN pauses p USING (tenant_id)
		WHERE p.paused IS NOT TRUE) due ON true) x
LEFT JOIN {schema}.outbox_projector r ON r.owner = x.owner AND r.failed_at >= x.since
WHERE x.since < clock_timestamp() - interval '1 minute' ORDER BY x.free DESC, x.since`

// LaneStates looks at the first rows of each lane. Limits are literals for the reason given at lanedb.fetchRows, and
// the time is asked for once for the reason given at lanedb.dueRows.
const LaneStates = `
WITH ` + lanesOfStats + `,` + pausesOfStats + `
SELECT l.lane, l.grp, coalesce(l.owner, ''), l.epoch, CASE WHEN l.owner IS NOT NULL THEN l.lease_until END, NOT lanes.free,
	fresh.n, fresh.claimed, held.n, least(fresh.since, held.since),
	coalesce(extract(epoch FROM (SELECT clock_timestamp()) - least(fresh.since, held.since)), 0)::float8
FROM lanes JOIN {schema}.outbox_lane l ON l.lane = lanes.lane
LEFT JOIN {schema}.outbox_claimed() taken ON taken.lane = l.lane
CROSS JOIN LATERAL (
	SELECT count(*) AS n, count(*) FILTER (WHERE o.seq <= taken.upto OR o.seq = ANY (taken.picked)) AS claimed,
		min(greatest(o.created_at, o.not_before)) FILTER (WHERE (o.not_before IS NULL OR o.not_before <= (SELECT clock_timestamp()))
			AND NOT EXISTS (SELECT FROM pauses p WHERE p.tenant_id = o.tenant_id AND p.paused)) AS since
	FROM (
		SELECT o.seq, o.created_at, o.not_before, o.tenant_id FROM {schema}.outbox o
		WHERE o.lane = lanes.lane AND o.seq > lanes.sent AND NOT o.seq <@ lanes.ahead ORDER BY o.seq LIMIT 1000) o) fresh
CROSS JOIN LATERAL (
	SELECT count(*) AS n, min(greatest(h.created_at, h.not_before))
		FILTER (WHERE NOT EXISTS (SELECT FROM pauses p WHERE p.tenant_id = h.tenant_id AND p.paused)) AS since
	FROM (
		SELECT h.created_at, h.not_before, h.tenant_id FROM {schema}.outbox_held h
		WHERE h.lane = lanes.lane AND (h.not_before IS NULL OR h.retry_count > 0) ORDER BY h.seq LIMIT 1000) h) held
ORDER BY l.lane`
