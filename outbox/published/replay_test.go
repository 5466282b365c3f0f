package published_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/published"
)

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
	f.Child(yesterday.Format(time.DateOnly))
	f.Child(yesterday.AddDate(0, 0, -2).Format(time.DateOnly)) // the day between goes to the DEFAULT partition
	const n = 4000                                             // three days
	f.Publish(n)
	minutes := func(i int64) time.Time { return midnight.Add(-time.Duration(i) * time.Minute) }
	for name, c := range map[string]struct {
		filter published.Filter
		want   func(i int64) bool
	}{
		"all":       {published.Filter{}, nil},
		"tenant":    {published.Filter{TenantID: "t1"}, func(i int64) bool { return i%2 == 1 }},
		"topic":     {published.Filter{Topic: "topic2"}, func(i int64) bool { return i%3 == 2 }},
		"type":      {published.Filter{Type: "e4"}, func(i int64) bool { return i%5 == 4 }},
		"aggregate": {published.Filter{AggregateType: "order", AggregateID: "7"}, func(i int64) bool { return i%10 == 7 }},
		"from":      {published.Filter{SentFrom: minutes(100)}, func(i int64) bool { return i <= 100 }},
		"before":    {published.Filter{SentBefore: minutes(100)}, func(i int64) bool { return i > 100 }},
		"no such":   {published.Filter{AggregateType: "invoice"}, func(int64) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			to, got := collect()
			want := upTo(n, c.want)
			done, err := f.Published().Replay(t.Context(), c.filter, "order.rebuild", to, &published.Replay{DryRun: true})
			require.NoError(t, err)
			require.EqualValues(t, len(want), done.Events)
			require.Empty(t, *got, "only counted")
			done, err = f.Published().Replay(t.Context(), c.filter, "order.rebuild", to, nil)
			require.NoError(t, err)
			require.EqualValues(t, len(want), done.Events)
			require.Equal(t, want, sequences(*got), "in the order of the sequence, whenever they were published")
		})
	}
	require.Equal(t, n, f.Count("outbox_sent"))
}

func TestReplayedEventsAreThoseThatWerePublished(t *testing.T) {
	f := newFixture(t, nil)
	id := f.Record("a", "a1", event.WithHeader("k", "v"), event.WithExpiry(time.Now().Add(time.Hour)))
	f.Settle()
	to, got := collect()
	_, err := f.Published().Replay(t.Context(), published.Filter{}, "order.rebuild", to, nil)
	require.NoError(t, err)
	e := (*got)[0]
	require.Equal(t, []any{id, "a1", "order", "a", int64(1), []byte("a1")}, []any{e.ID, e.Type, e.AggregateType, e.AggregateID, e.AggregateVersion, e.Payload})
	require.Equal(t, "order.rebuild", e.Topic)
	require.Equal(t, "order", e.Metadata[published.MetadataOriginalTopic])
	require.Equal(t, "v", e.Metadata["k"])
	require.Zero(t, e.Delivery, "what was due then, or has expired since, is replayed all the same")

	_, err = f.Published().Replay(t.Context(), published.Filter{}, "order.rebuild", to, nil)
	require.NoError(t, err)
	first, second := e.Metadata[published.MetadataReplay], (*got)[1].Metadata[published.MetadataReplay]
	require.NotEmpty(t, first)
	require.NotEqual(t, first, second, "a broker would take the second replay for copies of the first")
}

func TestReplayGoesOnWhereItFailed(t *testing.T) {
	f := newFixture(t, nil)
	f.Publish(1000)
	down := errors.New("the broker is down")
	to, got := collect()
	var progress []published.Replayed
	options := &published.Replay{BatchSize: 300, Progress: func(r published.Replayed) { progress = append(progress, r) }}
	done, err := f.Published().Replay(t.Context(), published.Filter{}, "x", func(ctx context.Context, events []event.Envelope) error {
		if len(*got) == 600 {
			return down
		}
		return to(ctx, events)
	}, options)
	require.ErrorIs(t, err, down)
	require.Equal(t, published.Replayed{Events: 600, Last: 600}, done)
	require.Equal(t, []published.Replayed{{Events: 300, Last: 300}, {Events: 600, Last: 600}}, progress)
	options.After, options.DryRun = done.Last, true
	rest, err := f.Published().Replay(t.Context(), published.Filter{}, "x", to, options)
	require.NoError(t, err)
	require.Equal(t, published.Replayed{Events: 400, Last: 600}, rest)
	options.DryRun = false
	done, err = f.Published().Replay(t.Context(), published.Filter{}, "x", to, options)
	require.NoError(t, err)
	require.Equal(t, published.Replayed{Events: 400, Last: 1000}, done)
	require.Equal(t, upTo(1000, nil), sequences(*got))
}

func TestReplayNeverGoesToALiveTopic(t *testing.T) {
	f := newFixture(t, nil)
	f.Publish(10)
	to, got := collect()
	for topic, want := range map[string]string{"topic1": published.ErrLiveTopic.Error(), "": "topic is empty", "a\x00b": "topic"} {
		_, err := f.Published().Replay(t.Context(), published.Filter{Topic: "topic2"}, topic, to, nil)
		require.ErrorContains(t, err, want, "%q", topic)
	}
	_, err := f.Published().Replay(t.Context(), published.Filter{Topic: "topic2"}, "topic1", to, nil)
	require.ErrorIs(t, err, published.ErrLiveTopic)
	_, err = f.Published().Replay(t.Context(), published.Filter{SentFrom: time.Now(), SentBefore: time.Now().Add(-time.Hour)}, "x", to, nil)
	require.ErrorContains(t, err, "is not before SentBefore")
	noon := time.Now()
	_, err = f.Published().Replay(t.Context(), published.Filter{SentFrom: noon, SentBefore: noon}, "x", to, nil)
	require.ErrorContains(t, err, "is not before SentBefore", "it would select nothing")
	_, err = f.Published().Replay(t.Context(), published.Filter{AggregateID: "a\x00b"}, "x", to, nil)
	require.ErrorContains(t, err, "published.Filter.AggregateID")
	pooled := outbox.NewStore(f.DB.DB, &outbox.Config{Pooler: true})
	done, err := pooled.Published().Replay(t.Context(), published.Filter{}, "x", to, &published.Replay{After: 7})
	require.ErrorContains(t, err, "pooler")
	require.Equal(t, published.Replayed{Last: 7}, done, "where to go on")
	require.Empty(t, *got)
}

// Whether a topic carries live events is looked for at the beginnings of days only, so a replay does not read all rows
// for that.
func TestReplayLooksForALiveTopicAtTheBeginningsOfDays(t *testing.T) {
	f := newFixture(t, nil)
	yesterday := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	f.Child(yesterday)
	f.PublishedOn(yesterday, 1)
	f.Exec("UPDATE outbox_sent SET topic = 'first'")
	f.PublishedOn(yesterday, 10_001)
	f.Exec("UPDATE outbox_sent SET topic = 'last' WHERE seq = (SELECT max(seq) FROM outbox_sent)")
	to, got := collect()
	_, err := f.Published().Replay(t.Context(), published.Filter{Topic: "order"}, "first", to, nil)
	require.ErrorIs(t, err, published.ErrLiveTopic)
	require.Empty(t, *got)
	done, err := f.Published().Replay(t.Context(), published.Filter{Topic: "order"}, "last", to, nil)
	require.NoError(t, err, "a topic that is seldom used passes")
	require.EqualValues(t, 10_000, done.Events)

	// Its own events never do.
	done, err = f.Published().Replay(t.Context(), published.Filter{}, "last", to, &published.Replay{BatchSize: 10_000})
	require.ErrorIs(t, err, published.ErrLiveTopic)
	require.EqualValues(t, 10_000, done.Events)
}

// A replay may take hours; a snapshot held for as long would keep VACUUM from the outbox and slow the relay down.
func TestReplayHoldsNoSnapshotAndLeavesNothingBehind(t *testing.T) {
	f := newFixture(t, nil)
	f.Publish(10)
	f.DB.SetMaxOpenConns(2) // the replay's, and the one of the test
	looked := 0
	to := func(ctx context.Context, _ []event.Envelope) error {
		looked++
		var states []string
		err := f.DB.NewRaw(`SELECT state || ' ' || coalesce(backend_xmin::text, 'no snapshot') FROM pg_stat_activity
			WHERE query LIKE '%FROM unnest($1::bigint[], $2::text[]) a(child, place)%' AND query LIKE ? AND pid <> pg_backend_pid()`,
			"%"+f.DB.Schema+"%").Scan(ctx, &states)
		require.NoError(t, err)
		require.Equal(t, []string{"idle no snapshot"}, states)
		return nil
	}
	s := outbox.NewStore(f.DB.DB, &outbox.Config{Schema: f.DB.Schema})
	for range 3 { // a cursor that is left open would keep its name
		_, err := s.Published().Replay(t.Context(), published.Filter{}, "x", to, &published.Replay{BatchSize: 5})
		require.NoError(t, err)
	}
	require.Equal(t, 6, looked)
}

func TestReplayTellsOfRowsThatWereDroppedMeanwhile(t *testing.T) {
	f := newFixture(t, nil)
	f.Child("2020-01-02")
	f.PublishedOn("2020-01-02", 20)
	first := true
	done, err := f.Published().Replay(t.Context(), published.Filter{}, "x", func(context.Context, []event.Envelope) error {
		if first {
			f.Exec("DROP TABLE outbox_sent_20200102")
		}
		first = false
		return nil
	}, &published.Replay{BatchSize: 5})
	require.ErrorContains(t, err, "5 rows no longer exist")
	require.EqualValues(t, 5, done.Events)
}

func TestReplayReadsOnlyTheDaysAskedFor(t *testing.T) {
	f := newFixture(t, nil)
	for _, day := range []string{"2020-01-02", "2020-01-03", "2020-01-04"} {
		f.Child(day)
		f.PublishedOn(day, 20000)
	}
	f.Exec("ANALYZE outbox_sent")
	statement, args := published.Choose(published.Filter{
		SentFrom: time.Date(2020, 1, 3, 0, 0, 0, 0, time.UTC), SentBefore: time.Date(2020, 1, 4, 0, 0, 0, 0, time.UTC),
	})
	plan := f.ExplainOnce(statement, args...)
	require.Contains(t, plan, "outbox_sent_20200103")
	require.NotContains(t, plan, "outbox_sent_20200102")
	require.NotContains(t, plan, "outbox_sent_20200104")
	plan = f.ExplainOnce(published.ReadSent, []int64{1, 2, 3}, []string{"(0,1)", "(0,2)", "(0,3)"})
	require.Contains(t, plan, "Tid Scan on outbox_sent_20200103")
}
