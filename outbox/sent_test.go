package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
)

// published stores n published events of 10 aggregates, one per minute from today's midnight back, so that the order of
// publication is the reverse of that of the sequence.
func (f *fixture) published(n int) {
	f.t.Helper()
	f.exec(`INSERT INTO outbox_sent (seq, id, occurred_at, created_at, not_before, expires_at, aggregate_version, schema_version, lane, retry_count,
		crashes, tenant_id, topic, ordering_key, aggregate_type, aggregate_id, event_type, source, content_type, event_metadata, payload, sent_at)
		SELECT i, gen_random_uuid(), now(), now(), now() - interval '1 day', now() - interval '1 hour', i, 1, i % 64, 0, 0, 't' || i % 2,
			'topic' || i % 3, 'k', 'order', i % 10, 'e' || i % 5, 's', 'text/plain', '{"k":"v"}', i::text::bytea,
			date_trunc('day', now(), 'UTC') - i * interval '1 minute' FROM generate_series(1, ?) i`, n)
}

// collect returns a receiver of batches and what it has received.
func collect() (func(context.Context, []event.Envelope) error, *[]event.Envelope) {
	var got []event.Envelope
	return func(_ context.Context, events []event.Envelope) error {
		got = append(got, events...)
		return nil
	}, &got
}

func sequences(events []event.Envelope) (out []int64) {
	for _, e := range events {
		out = append(out, e.Sequence)
	}
	return out
}

func upTo(n int, which func(i int64) bool) (out []int64) {
	for i := range int64(n) {
		if which == nil || which(i+1) {
			out = append(out, i+1)
		}
	}
	return out
}

func TestReplayOfPublishedEvents(t *testing.T) {
	f := newFixture(t, nil)
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	yesterday := midnight.AddDate(0, 0, -1)
	f.child(yesterday.Format(time.DateOnly))
	f.child(yesterday.AddDate(0, 0, -2).Format(time.DateOnly)) // the day between goes to the DEFAULT partition
	const n = 4000                                             // three days
	f.published(n)
	minutes := func(i int64) time.Time { return midnight.Add(-time.Duration(i) * time.Minute) }
	for name, c := range map[string]struct {
		filter outbox.SentFilter
		want   func(i int64) bool
	}{
		"all":       {outbox.SentFilter{}, nil},
		"tenant":    {outbox.SentFilter{TenantID: "t1"}, func(i int64) bool { return i%2 == 1 }},
		"topic":     {outbox.SentFilter{Topic: "topic2"}, func(i int64) bool { return i%3 == 2 }},
		"type":      {outbox.SentFilter{Type: "e4"}, func(i int64) bool { return i%5 == 4 }},
		"aggregate": {outbox.SentFilter{AggregateType: "order", AggregateID: "7"}, func(i int64) bool { return i%10 == 7 }},
		"from":      {outbox.SentFilter{SentFrom: minutes(100)}, func(i int64) bool { return i <= 100 }},
		"before":    {outbox.SentFilter{SentBefore: minutes(100)}, func(i int64) bool { return i > 100 }},
		"no such":   {outbox.SentFilter{AggregateType: "invoice"}, func(int64) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			to, got := collect()
			want := upTo(n, c.want)
			done, err := f.ReplaySent(t.Context(), c.filter, "order.rebuild", to, &outbox.SentReplay{DryRun: true})
			require.NoError(t, err)
			require.EqualValues(t, len(want), done.Events)
			require.Empty(t, *got, "only counted")
			done, err = f.ReplaySent(t.Context(), c.filter, "order.rebuild", to, nil)
			require.NoError(t, err)
			require.EqualValues(t, len(want), done.Events)
			require.Equal(t, want, sequences(*got), "in the order of the sequence, whenever they were published")
		})
	}
	require.Equal(t, n, f.count("outbox_sent"))
}

func TestReplayedEventsAreThoseThatWerePublished(t *testing.T) {
	f := newFixture(t, nil)
	id := f.add("a", "a1", event.WithHeader("k", "v"), event.WithExpiry(time.Now().Add(time.Hour)))
	f.settle()
	to, got := collect()
	_, err := f.ReplaySent(t.Context(), outbox.SentFilter{}, "order.rebuild", to, nil)
	require.NoError(t, err)
	e := (*got)[0]
	require.Equal(t, []any{id, "a1", "order", "a", int64(1), []byte("a1")}, []any{e.ID, e.Type, e.AggregateType, e.AggregateID, e.AggregateVersion, e.Payload})
	require.Equal(t, "order.rebuild", e.Topic)
	require.Equal(t, "order", e.Metadata[outbox.MetadataOriginalTopic])
	require.Equal(t, "v", e.Metadata["k"])
	require.Zero(t, e.Delivery, "what was due then, or has expired since, is replayed all the same")
}

func TestReplayGoesOnWhereItFailed(t *testing.T) {
	f := newFixture(t, nil)
	f.published(1000)
	down := errors.New("the broker is down")
	to, got := collect()
	var progress []outbox.Replayed
	options := &outbox.SentReplay{BatchSize: 300, Progress: func(r outbox.Replayed) { progress = append(progress, r) }}
	done, err := f.ReplaySent(t.Context(), outbox.SentFilter{}, "x", func(ctx context.Context, events []event.Envelope) error {
		if len(*got) == 600 {
			return down
		}
		return to(ctx, events)
	}, options)
	require.ErrorIs(t, err, down)
	require.Equal(t, outbox.Replayed{Events: 600, Last: 600}, done)
	require.Equal(t, []outbox.Replayed{{Events: 300, Last: 300}, {Events: 600, Last: 600}}, progress)
	options.After, options.DryRun = done.Last, true
	rest, err := f.ReplaySent(t.Context(), outbox.SentFilter{}, "x", to, options)
	require.NoError(t, err)
	require.Equal(t, outbox.Replayed{Events: 400, Last: 600}, rest)
	options.DryRun = false
	done, err = f.ReplaySent(t.Context(), outbox.SentFilter{}, "x", to, options)
	require.NoError(t, err)
	require.Equal(t, outbox.Replayed{Events: 400, Last: 1000}, done)
	require.Equal(t, upTo(1000, nil), sequences(*got))
}

func TestReplayNeverGoesToALiveTopic(t *testing.T) {
	f := newFixture(t, nil)
	f.published(10)
	to, got := collect()
	for topic, want := range map[string]string{"topic1": outbox.ErrLiveTopic.Error(), "": "topic is empty", "a\x00b": "topic"} {
		_, err := f.ReplaySent(t.Context(), outbox.SentFilter{Topic: "topic2"}, topic, to, nil)
		require.ErrorContains(t, err, want, "%q", topic)
	}
	_, err := f.ReplaySent(t.Context(), outbox.SentFilter{Topic: "topic2"}, "topic1", to, nil)
	require.ErrorIs(t, err, outbox.ErrLiveTopic)
	_, err = f.ReplaySent(t.Context(), outbox.SentFilter{SentFrom: time.Now(), SentBefore: time.Now().Add(-time.Hour)}, "x", to, nil)
	require.ErrorContains(t, err, "is not before SentBefore")
	noon := time.Now()
	_, err = f.ReplaySent(t.Context(), outbox.SentFilter{SentFrom: noon, SentBefore: noon}, "x", to, nil)
	require.ErrorContains(t, err, "is not before SentBefore", "it would select nothing")
	_, err = f.ReplaySent(t.Context(), outbox.SentFilter{AggregateID: "a\x00b"}, "x", to, nil)
	require.ErrorContains(t, err, "SentFilter.AggregateID")
	pooled := outbox.NewStore(f.db.DB, &outbox.Config{Pooler: true})
	done, err := pooled.ReplaySent(t.Context(), outbox.SentFilter{}, "x", to, &outbox.SentReplay{After: 7})
	require.ErrorContains(t, err, "pooler")
	require.Equal(t, outbox.Replayed{Last: 7}, done, "where to go on")
	require.Empty(t, *got)
}

// What all days hold is not read for it, however much that is.
func TestReplayLooksForALiveTopicAtTheBeginningsOfDays(t *testing.T) {
	f := newFixture(t, nil)
	yesterday := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	f.child(yesterday)
	f.publishedOn(yesterday, 1)
	f.exec("UPDATE outbox_sent SET topic = 'first'")
	f.publishedOn(yesterday, 10_001)
	f.exec("UPDATE outbox_sent SET topic = 'last' WHERE seq = (SELECT max(seq) FROM outbox_sent)")
	to, got := collect()
	_, err := f.ReplaySent(t.Context(), outbox.SentFilter{Topic: "order"}, "first", to, nil)
	require.ErrorIs(t, err, outbox.ErrLiveTopic)
	require.Empty(t, *got)
	done, err := f.ReplaySent(t.Context(), outbox.SentFilter{Topic: "order"}, "last", to, nil)
	require.NoError(t, err, "a topic that is seldom used passes")
	require.EqualValues(t, 10_000, done.Events)

	// Its own events never do.
	done, err = f.ReplaySent(t.Context(), outbox.SentFilter{}, "last", to, &outbox.SentReplay{BatchSize: 10_000})
	require.ErrorIs(t, err, outbox.ErrLiveTopic)
	require.EqualValues(t, 10_000, done.Events)
}

// A replay may take hours; a snapshot held for as long would keep VACUUM from the outbox and slow the relay down.
func TestReplayHoldsNoSnapshotAndLeavesNothingBehind(t *testing.T) {
	f := newFixture(t, nil)
	f.published(10)
	f.db.SetMaxOpenConns(2) // the replay's and the one that looks at it
	looked := 0
	to := func(ctx context.Context, _ []event.Envelope) error {
		looked++
		var states []string
		err := f.db.NewRaw(`SELECT state || ' ' || coalesce(backend_xmin::text, 'no snapshot') FROM pg_stat_activity
			WHERE query LIKE '%FROM unnest($1::bigint[], $2::text[]) a(child, place)%' AND query LIKE ? AND pid <> pg_backend_pid()`,
			"%"+f.db.Schema+"%").Scan(ctx, &states)
		require.NoError(t, err)
		require.Equal(t, []string{"idle no snapshot"}, states)
		return nil
	}
	s := outbox.NewStore(f.db.DB, &outbox.Config{Schema: f.db.Schema})
	for range 3 { // a cursor that is left open would keep its name
		_, err := s.ReplaySent(t.Context(), outbox.SentFilter{}, "x", to, &outbox.SentReplay{BatchSize: 5})
		require.NoError(t, err)
	}
	require.Equal(t, 6, looked)
}

func TestReplayTellsOfRowsThatWereDroppedMeanwhile(t *testing.T) {
	f := newFixture(t, nil)
	f.child("2020-01-02")
	f.publishedOn("2020-01-02", 20)
	first := true
	done, err := f.ReplaySent(t.Context(), outbox.SentFilter{}, "x", func(context.Context, []event.Envelope) error {
		if first {
			f.exec("DROP TABLE outbox_sent_20200102")
		}
		first = false
		return nil
	}, &outbox.SentReplay{BatchSize: 5})
	require.ErrorContains(t, err, "5 rows are not there any more")
	require.EqualValues(t, 5, done.Events)
}

func TestReplayReadsOnlyTheDaysAskedFor(t *testing.T) {
	f := newFixture(t, nil)
	for _, day := range []string{"2020-01-02", "2020-01-03", "2020-01-04"} {
		f.child(day)
		f.publishedOn(day, 20000)
	}
	f.exec("ANALYZE outbox_sent")
	plan, err := f.ExplainSent(t.Context(), outbox.SentFilter{
		SentFrom: time.Date(2020, 1, 3, 0, 0, 0, 0, time.UTC), SentBefore: time.Date(2020, 1, 4, 0, 0, 0, 0, time.UTC),
	})
	require.NoError(t, err)
	require.Contains(t, plan, "outbox_sent_20200103")
	require.NotContains(t, plan, "outbox_sent_20200102")
	require.NotContains(t, plan, "outbox_sent_20200104")
	plan, err = f.ExplainRead(t.Context())
	require.NoError(t, err)
	require.Contains(t, plan, "Tid Scan on outbox_sent_20200103")
}
