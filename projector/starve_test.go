package projector_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/state"
)

// One lane is full of rows that cannot leave: 10,000 that are held behind a dead letter, 10,000 fresh ones of the same
// key, a thousand that are due and refused each time. A row that can leave does, from among the held ones and from behind
// all the fresh ones.
func TestRowsThatCannotLeaveStarveNoOther(t *testing.T) {
	f := newFixture(t)
	f.pub.refuse = func(e event.Envelope) error {
		if strings.HasPrefix(e.Type, "good") {
			return nil
		}
		return errors.New("not now")
	}
	add := func(n int, name, key string) {
		_, err := f.db.Exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, routing_key, event_type, source, payload)
			SELECT gen_random_uuid(), now(), 3, 'a', 'order', nullif(?, ''), nullif(?, ''), ?, 'test', 'x' FROM generate_series(1, ?)`, key, key, name, n)
		require.NoError(t, err)
	}
	hold := func(n int, name, key, until string) {
		add(n, name, key)
		_, err := f.db.Exec(`WITH gone AS (DELETE FROM outbox RETURNING *) INSERT INTO outbox_held SELECT *, ?::timestamptz FROM gone`, until)
		require.NoError(t, err)
	}
	_, err := f.db.Exec("INSERT INTO outbox_block (lane, ordering_key, head_seq, state) VALUES (3, 'bad', 0, 'dead')")
	require.NoError(t, err)
	hold(10000, "follower", "bad", "infinity")
	hold(1, "good held", "", "now")
	hold(1000, "refused", "", "yesterday")
	add(10000, "behind", "bad")
	add(1, "good fresh", "good")
	require.NoError(t, err)
	cfg := quick()
	cfg.MaxRetryAttempts = -1
	f.run(f.projector(cfg))
	f.eventually("both good rows are sent", func() bool { return f.pub.total() == 2 })
	require.ElementsMatch(t, []string{"good held", "good fresh"}, f.pub.types())
}

// Many held rows have expired. They are dead at once, and a row behind them waits for one look after the other and no pause.
func TestExpiredRowsDelayNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const expired = 5 * lanedb.MaxDue
	hold := func(n int, name, until string) {
		_, err := f.db.Exec(`WITH row AS (
				INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, routing_key, event_type, source, payload, expires_at)
				SELECT gen_random_uuid(), now(), i % 64, 'a', 'order', ? || i, ? || i, ?, 'test', 'x', ?::timestamptz FROM generate_series(1, ?) i RETURNING *),
			gone AS (INSERT INTO outbox_held SELECT *, now() - interval '1 minute' + seq * interval '1 microsecond' FROM row)
			INSERT INTO outbox_block SELECT lane, ordering_key, seq, 'failed' FROM row`, name, name, name, until, n)
		require.NoError(t, err)
		_, err = f.db.Exec("DELETE FROM outbox")
		require.NoError(t, err)
	}
	hold(expired, "expired", "yesterday")
	hold(1, "good", "tomorrow")
	statements := f.passWithOneWorker("INTO outbox_dead")
	require.Equal(t, []string{"good"}, f.pub.types())
	require.Equal(t, expired, f.rows("outbox_dead"))
	require.LessOrEqual(t, statements, int32(expired/lanedb.MaxDue+1))
}

// An operator discards the dead letters of many keys at once. What is published meanwhile does not wait until all of their
// blocks are lifted.
func TestDiscardOfManyKeysDelaysNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const keys = 3000
	_, err := f.db.Exec(`WITH row AS (
			INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, event_type, source, payload)
			SELECT gen_random_uuid(), now(), i % 64, 'a', 'order', 'k' || i, 'dead', 'test', 'x' FROM generate_series(1, ?) i RETURNING *),
		dead AS (INSERT INTO outbox_dead SELECT * FROM row)
		INSERT INTO outbox_block SELECT lane, ordering_key, seq, 'dead' FROM row`, keys)
	require.NoError(t, err)
	_, err = f.db.Exec("DELETE FROM outbox")
	require.NoError(t, err)
	n, err := f.store.Dead().DiscardAll(t.Context(), operator.DeadFilter{}, operator.By{Actor: "ann", Reason: "a test"}, nil)
	require.NoError(t, err)
	require.EqualValues(t, keys, n)
	f.add("good", "good")
	blocks := 0
	f.pub.refuse = func(event.Envelope) error {
		return f.db.QueryRow("SELECT count(*) FROM outbox_block").Scan(&blocks)
	}
	statements := f.passWithOneWorker("lift AS")
	require.Equal(t, []string{"good"}, f.pub.types())
	require.Greater(t, blocks, keys/2)
	require.Zero(t, f.rows("outbox_block"))
	require.LessOrEqual(t, statements, int32(20))
}

// One row of a batch that nobody will ever take costs the others nothing, not even a second call.
func TestOneBadRowOfAHundred(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var calls atomic.Int64
	f.pub.refuse = func(e event.Envelope) error {
		calls.Add(1)
		if e.Type == "e37" {
			return messaging.Permanent(errors.New("bad bytes: \x00 \xff"))
		}
		return nil
	}
	for n := range 100 {
		f.add(fmt.Sprint("k", n), fmt.Sprint("e", n))
	}
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	require.EqualValues(t, 100, calls.Load())
	for name, status := range f.statuses() {
		if name == "e37" {
			require.Equal(t, state.StatusDead, status)
		} else {
			require.Equal(t, state.StatusSent, status, name)
		}
	}
}

// A row that another program wrote, with metadata that oncebox would never write, costs the other rows
// nothing and is sent as well.
func TestRowOfAnotherHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for n := range 100 {
		f.add(fmt.Sprint("k", n), fmt.Sprint("e", n))
	}
	for name, metadata := range map[string]string{"e5": `{"n": 1, "s": "t", "o": {"a": null}}`, "e6": `[1]`, "e7": `null`} {
		_, err := f.db.Exec("UPDATE outbox SET event_metadata = ? WHERE event_type = ?", metadata, name)
		require.NoError(t, err)
	}
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	require.True(t, f.allSent())
	for _, m := range f.pub.events() {
		switch m.Type {
		case "e5":
			require.Equal(t, event.Metadata{"n": "1", "s": "t", "o": `{"a": null}`}, m.Metadata)
		case "e6":
			require.Equal(t, event.Metadata{"event_metadata": "[1]"}, m.Metadata)
		}
	}
}

// passWithOneWorker publishes what there is, and counts the statements that contain part.
func (f *fixture) passWithOneWorker(part string) int32 {
	f.t.Helper()
	var statements atomic.Int32
	store := f.through(func(statement string, _ bool) {
		if strings.Contains(statement, part) {
			statements.Add(1)
		}
	}, nil)
	cfg := quick()
	cfg.Workers = 1
	require.NoError(f.t, f.relay(f.pub, cfg, store).RunOnce(f.t.Context()))
	return statements.Load()
}
