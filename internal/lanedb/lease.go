package lanedb

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// ErrFenced means that another projector has the lane now, or that an operator changed it meanwhile. Nothing was written.
var ErrFenced = errors.New("outbox: another relay owns the lane by now, or the state of the lane has changed")

// Lease is the right to publish the rows of one lane. Everything that its owner writes is compared with owner and
// epoch.
type Lease struct {
	Lane  int16
	Owner string
	Epoch int64
	// InFlight names the rows that the former owner may have had on their way when it vanished.
	InFlight InFlight
	// Incarnation is the incarnation of the server for which the owner knows the position of the lane, see
	// [Watermark].
	Incarnation string
	// PassedTo is for the statistics: every unsent row with a number up to this belongs to a paused tenant. 0:
	// unknown.
	PassedTo int64
	// OpenTo is for the statistics: every unsent row with a number up to this belongs to a transaction that is open.
	// 0: unknown.
	OpenTo int64
}

// InFlight names rows that were on their way when a projector vanished. One of them may be the reason.
type InFlight struct {
	// UpTo means every row with a number up to this. 0: the lane was free, or was handed back.
	UpTo int64
	// Picked means the rows with these numbers as well.
	Picked []int64
	// HeldUntil means every held row that was due by then, by the clock of the database.
	HeldUntil time.Time
}

const (
	// heartbeat records that this projector is alive, and counts the projectors that are.
	heartbeat = `
WITH me AS (
	INSERT INTO {schema}.outbox_projector (owner, grp, deployment, seen_until, lease) VALUES ($1, $2, $4, clock_timestamp() + $3::interval, $3)
	ON CONFLICT (owner) DO UPDATE SET grp = excluded.grp, deployment = excluded.deployment, seen_until = excluded.seen_until, lease = excluded.lease)
SELECT 1 + (SELECT count(*) FROM {schema}.outbox_projector WHERE grp = $2 AND owner <> $1 AND seen_until > clock_timestamp()),
	(SELECT count(*) FROM {schema}.outbox_lane WHERE grp = $2),
	coalesce((SELECT string_agg(DISTINCT l.grp::text, ',' ORDER BY l.grp::text) FROM {schema}.outbox_lane l WHERE l.grp <> $2
		AND NOT EXISTS (SELECT FROM {schema}.outbox_projector p WHERE p.grp = l.grp AND p.seen_until > clock_timestamp())), ''),
	coalesce((SELECT extract(epoch FROM min(until) - clock_timestamp()) FROM (
		SELECT lease_until AS until FROM {schema}.outbox_lane WHERE grp = $2 AND owner <> $1
		UNION ALL SELECT seen_until FROM {schema}.outbox_projector WHERE grp = $2 AND owner <> $1) x
		WHERE until > clock_timestamp()), 0)::float8,
	EXISTS (SELECT FROM {schema}.outbox_lane WHERE owner <> $1 AND lease_until > ` + outboxdb.LatestEnd + `)
		OR EXISTS (SELECT FROM {schema}.outbox_projector WHERE owner <> $1 AND seen_until > ` + outboxdb.LatestEnd + `)`
	// unregister also deletes the heartbeats of projectors that vanished more than a day ago.
	unregister = `DELETE FROM {schema}.outbox_projector WHERE owner = $1 OR seen_until < clock_timestamp() - interval '1 day'`

	noteFailure = `
UPDATE {schema}.outbox_projector SET error = $2, failing_topic = $5, failed_at = clock_timestamp() - $3::interval,
	failing_since = CASE WHEN $4::interval < '0' THEN NULL
		WHEN failing_since BETWEEN clock_timestamp() - $4::interval - interval '1 second' AND clock_timestamp() - $4::interval + interval '1 second'
			THEN failing_since -- the same failure, computed again
		ELSE clock_timestamp() - $4::interval END
WHERE owner = $1`

	// claim takes free lanes. The claim is committed first, then the blocks are loaded, then the first fetch begins.
	// A former owner that still writes to a lane has the lane's row locked meanwhile, and claim skips the lane. So
	// whatever it writes is either committed before the claim, and seen by the load, or refused because of the
	// epoch.
	claim = `
WITH free AS MATERIALIZED (
	SELECT lane, owner AS prev FROM {schema}.outbox_lane
	WHERE grp = $1 AND lease_until < clock_timestamp()
	ORDER BY lease_until, lane LIMIT $4 FOR UPDATE SKIP LOCKED)
UPDATE {schema}.outbox_lane l SET owner = $2, epoch = l.epoch + 1, lease_until = clock_timestamp() + $3::interval, lease = $3
FROM free LEFT JOIN LATERAL (
	SELECT x.upto, x.picked FROM {schema}.outbox_claim x WHERE x.lane = free.lane ORDER BY x.n DESC LIMIT 1) taken ON true
WHERE l.lane = free.lane
RETURNING l.lane, l.epoch, free.prev IS NOT NULL, coalesce(taken.upto, 0), coalesce(array_to_string(taken.picked, ','), ''), clock_timestamp(),
	` + incarnation

	// renew locks in the order of the lanes, as every other statement over several lanes does. It also deletes the
	// notes of takeRows, except the latest one of each lane. It begins where the last renewal ended (taken_from):
	// while somebody holds an old snapshot, VACUUM cannot remove deleted notes, and a walk over all of them would
	// keep the lanes locked longer each time.
	renew = `
WITH mine AS MATERIALIZED (
	SELECT l.lane, c.passed_to, c.open_to, l.taken_from, (SELECT x.n FROM {schema}.outbox_claim x WHERE x.lane = l.lane ORDER BY x.n DESC LIMIT 1) AS latest
	FROM {schema}.outbox_lane l
	JOIN unnest($2::smallint[], $3::bigint[], $5::bigint[], $6::bigint[]) c(lane, epoch, passed_to, open_to) USING (lane, epoch)
	WHERE l.owner = $1 ORDER BY l.lane FOR NO KEY UPDATE OF l),
old AS (
	DELETE FROM {schema}.outbox_claim c USING mine WHERE c.lane = mine.lane AND c.n >= mine.taken_from AND c.n < mine.latest)
UPDATE {schema}.outbox_lane l SET lease_until = clock_timestamp() + $4::interval, lease = $4, passed_to = mine.passed_to, open_to = mine.open_to,
	taken_from = coalesce(mine.latest, mine.taken_from)
FROM mine WHERE l.lane = mine.lane
RETURNING l.lane, l.change`

	release = `
WITH mine AS MATERIALIZED (
	SELECT l.lane FROM {schema}.outbox_lane l JOIN unnest($2::smallint[], $3::bigint[]) c(lane, epoch) USING (lane, epoch)
	WHERE l.owner = $1 ORDER BY l.lane FOR NO KEY UPDATE OF l)
UPDATE {schema}.outbox_lane l SET owner = NULL, lease_until = '-infinity'
FROM mine WHERE l.lane = mine.lane`
)

// Membership says how many projectors share how many lanes.
type Membership struct {
	// Alive is the number of projectors of the group that are alive, with this one. Lanes is the number of lanes they share.
	Alive, Lanes int
	// Unserved lists the other groups that no projector serves.
	Unserved []int64
	// NextFree is the time until a lease or a heartbeat of another projector ends, unless it is renewed. Then there
	// may be lanes to claim. 0: there are no other projectors.
	NextFree time.Duration
	// FarAhead says that leases or heartbeats of others end so late that the clock of the database must have gone back, see [Leases.CutLeases].
	FarAhead bool
}

// Heartbeat records that owner, which serves the group, is alive for the next ttl, by the clock of the database. It
// returns how many projectors share the lanes of the group.
func (s Leases) Heartbeat(ctx context.Context, owner string, group int16, ttl time.Duration) (Membership, error) {
	var a Membership
	var unserved string
	var free float64
	args := []any{owner, group, ttl, s.box.Deployment}
	if err := s.box.Run.QueryRow(ctx, s.box.DB, heartbeat, args, &a.Alive, &a.Lanes, &unserved, &free, &a.FarAhead); err != nil {
		return a, fmt.Errorf("outbox: heartbeat: %w", pgerr.Explain(err))
	}
	a.Unserved, a.NextFree = parseInts(unserved), time.Duration(free*float64(time.Second))
	return a, nil
}

// NoteFailure records why the broker, or the topic, last took nothing from owner, and how long ago that was, for operators who ask why events do not leave.
// topic is "" if the broker was the reason. first is how long ago it began, and below 0 if something was taken since: then the failure is over.
func (s Leases) NoteFailure(ctx context.Context, owner, reason, topic string, last, first time.Duration) error {
	if _, err := s.box.Run.Exec(ctx, s.box.DB, noteFailure, owner, pgsql.CleanText(reason), last, first, topic); err != nil {
		return fmt.Errorf("outbox: record why nothing was published: %w", pgerr.Explain(err))
	}
	return nil
}

// Unregister deletes the heartbeat of owner, so that others take over its share at once.
func (s Leases) Unregister(ctx context.Context, owner string) error {
	if _, err := s.box.Run.Exec(ctx, s.box.DB, unregister, owner); err != nil {
		return fmt.Errorf("outbox: unregister: %w", err)
	}
	return nil
}

// Claim takes at most n lanes of the group that no projector holds, and returns the leases. They end after ttl, by
// the clock of the database, unless [Leases.Renew] extends them.
func (s Leases) Claim(ctx context.Context, owner string, group int16, n int, ttl time.Duration) ([]Lease, error) {
	leases, err := pgsql.Collect(s.box.Run.Query(ctx, s.box.DB, claim, group, owner, ttl, n), func(scan pgsql.Scan, l *Lease) error {
		l.Owner = owner
		var vanished bool
		var last InFlight
		var picked string
		if err := scan(&l.Lane, &l.Epoch, &vanished, &last.UpTo, &picked, &last.HeldUntil, &l.Incarnation); err != nil {
			return err
		}
		if vanished {
			last.Picked = parseInts(picked)
			l.InFlight = last
		}
		return nil
	})
	return leases, outboxdb.Wrap("claim lanes", err)
}

// parseInts reads what array_to_string wrote.
func parseInts(list string) []int64 {
	var out []int64
	for part := range strings.SplitSeq(list, ",") {
		if n, err := strconv.ParseInt(part, 10, 64); err == nil { // it fails only for the empty list
			out = append(out, n)
		}
	}
	return out
}

// Renew extends the leases to ttl from now. It returns, for each lane that is still held, how often an operator changed it. A lane that is
// missing in the answer is lost.
func (s Leases) Renew(ctx context.Context, leases []Lease, ttl time.Duration) (changes map[int16]int64, err error) {
	owner, lanes, epochs := split(leases)
	passed, open := make([]int64, len(leases)), make([]int64, len(leases))
	for i, l := range leases {
		passed[i], open[i] = l.PassedTo, l.OpenTo
	}
	changes = make(map[int16]int64, len(leases))
	err = pgsql.Each(s.box.Run.Query(ctx, s.box.DB, renew, owner, lanes, epochs, ttl, passed, open), func(scan pgsql.Scan) error {
		var lane int16
		var change int64
		if err := scan(&lane, &change); err != nil {
			return err
		}
		changes[lane] = change
		return nil
	})
	return changes, outboxdb.Wrap("renew leases", err)
}

// Release hands the lanes back, so that others need not wait for the leases to end. It notifies them, see
// [outboxdb.Handle.Listen]. A projector that does not receive the notification finds the lanes at its next heartbeat.
func (s Leases) Release(ctx context.Context, leases []Lease) error {
	owner, lanes, epochs := split(leases)
	if _, err := s.box.Run.Exec(ctx, s.box.DB, release, owner, lanes, epochs); err != nil || s.box.PollOnly {
		return outboxdb.Wrap("release lanes", err)
	}
	return s.box.Notify(ctx, outboxdb.LanesFreed)
}

// split turns leases of one owner into the arrays that unnest wants.
func split(leases []Lease) (owner string, lanes []int16, epochs []int64) {
	lanes, epochs = make([]int16, len(leases)), make([]int64, len(leases))
	for i, l := range leases {
		owner, lanes[i], epochs[i] = l.Owner, l.Lane, l.Epoch
	}
	return owner, lanes, epochs
}

// scanLanes collects a column of lane numbers.
func scanLanes(rows *pgsql.Rows) (map[int16]bool, error) {
	lanes := map[int16]bool{}
	err := pgsql.Each(rows, func(scan pgsql.Scan) error {
		var lane int16
		if err := scan(&lane); err != nil {
			return err
		}
		lanes[lane] = true
		return nil
	})
	return lanes, err
}

// CutLeases shortens leases and heartbeats that end too far ahead: from now on they last as long as usual, and at
// least ttl. It returns how many were cut. A projector that is alive renews its own.
func (s Leases) CutLeases(ctx context.Context, ttl time.Duration) (cut int64, err error) {
	for _, statement := range []string{outboxdb.CutLanes, outboxdb.CutHeartbeats} {
		n, err := s.box.Run.Exec(ctx, s.box.DB, statement, ttl)
		if err != nil {
			return cut, outboxdb.Wrap("cut leases", err)
		}
		cut += n
	}
	return cut, nil
}
