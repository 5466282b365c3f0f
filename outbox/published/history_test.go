package published_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/published"
)

// archived stores an event that was published that long ago.
func (f *fixture) archived(seq int64, key string, ago time.Duration) {
	f.T.Helper()
	f.Exec(`INSERT INTO outbox_sent (seq, id, occurred_at, created_at, aggregate_version, schema_version, lane, retry_count, crashes, tenant_id, topic,
		ordering_key, aggregate_type, aggregate_id, event_type, source, content_type, event_metadata, payload, sent_at)
		VALUES (?, gen_random_uuid(), now(), now(), 1, 1, 1, 0, 0, 't', 'order',
		'explicit', 'order', ?, 'e', 's', 'text/plain', '{"k":"v"}', '', now() - ?::interval)`,
		seq, key, ago.String())
}

// receive returns a receiver of portions of a source, what it has received, and the last checkpoint. It errs after n portions.
func receive(n int) (to func(context.Context, []event.Envelope, string) error, got *[]event.Envelope, checkpoint *string) {
	got, checkpoint = new([]event.Envelope), new(string)
	return func(_ context.Context, events []event.Envelope, behind string) error {
		*got, *checkpoint = append(*got, events...), behind
		if n--; n == 0 {
			return errStop
		}
		return nil
	}, got, checkpoint
}

var errStop = errors.New("stop")

func TestKeptGoesOnWithoutGaps(t *testing.T) {
	f := newFixture(t, nil)
	for seq := int64(1); seq <= 1200; seq++ {
		if seq != 10 && seq != 700 {
			f.archived(seq, "a", time.Hour)
		}
	}
	source := f.Published().History(published.Filter{Topic: "order"})
	to, got, checkpoint := receive(1)
	require.ErrorIs(t, source(t.Context(), "", to), errStop)
	require.Len(t, *got, 500)
	first := (*got)[0]
	require.Equal(t, "order", first.Topic)
	require.Equal(t, event.Metadata{"k": "v"}, first.Metadata)
	require.Equal(t, event.Delivery{}, first.Delivery, "as consumers get it, or its key would be another")

	// They were held while others were published, and are not now. What follows them in their key must not come before them.
	f.archived(10, "b", 0)
	f.archived(700, "b", 0)
	to, got, _ = receive(0)
	require.NoError(t, source(t.Context(), *checkpoint, to))
	require.Equal(t, append([]int64{10}, upTo(1200, func(i int64) bool { return i > 501 })...), sequences(*got)[:700])
	require.Equal(t, []int64{10, 700}, sequences(*got)[700:], "what was published since it began, once more")

	require.ErrorContains(t, source(t.Context(), "4711", to), "is none of this source")
	require.ErrorContains(t, f.Published().History(published.Filter{Topic: "a\x00b"})(t.Context(), "", to), "published.Filter.Topic")
	pooled := outbox.NewStore(f.DB.DB, &outbox.Config{Pooler: true})
	require.ErrorContains(t, pooled.Published().History(published.Filter{})(t.Context(), "", to), "pooler")
}

// A consumer may have handled what nobody has recorded as published.
func TestKeptWaitsForWhatIsOnItsWay(t *testing.T) {
	f := newFixture(t, nil)
	f.Record("a", "a1")
	rows := f.Fetch()
	f.Record("a", "a2") // nobody publishes it
	to, got, _ := receive(0)
	source := f.Published().History(published.Filter{})

	// The pauses become longer and longer: one of these deadlines ends a pause, and not a statement before it.
	said := false
	for patience := 50 * time.Millisecond; !said && patience < time.Minute; patience *= 2 {
		short, cancel := context.WithTimeout(t.Context(), patience)
		err := source(short, "", to)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		said = strings.Contains(err.Error(), "the outcome of 1 events that were sent to the broker")
	}
	require.True(t, said)

	one := f.DB.Another(t)
	one.SetMaxOpenConns(1) // so that its last statement is known
	var pid int
	require.NoError(t, one.QueryRow("SELECT pg_backend_pid()").Scan(&pid))
	source = outbox.NewStore(one, nil).Published().History(published.Filter{})
	done := make(chan error, 1)
	go func() { done <- source(t.Context(), "", to) }()
	await.True(t, func() bool {
		return f.Count("pg_stat_activity WHERE pid = ? AND query LIKE '%o.seq <= t.value%'", pid) == 1
	},
		"it has looked what is on its way")
	lease := f.Leases[rows[0].Lane]
	_, err := lanedb.Of(f.Handle()).Moves.Settle(t.Context(), []lanedb.Lease{lease}, []outboxdb.RowID{{Lane: lease.Lane, Seq: rows[0].Sequence}})
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.Equal(t, rows[0].ID, (*got)[0].ID)
	require.Len(t, *got, 2, "once, and once more at the end")
}
