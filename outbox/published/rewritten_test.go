package published_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox/published"
)

// kept stores n published events, in turn of two tenants and in 16 lanes: every third left out of its turn. It returns the tables of today.
func (f *fixture) kept(n int) (log, sent string) {
	f.T.Helper()
	f.Exec(`INSERT INTO outbox (seq, id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		SELECT i, gen_random_uuid(), now(), i % 16, 't' || i % 2, 'order', 'e', 's', i::text::bytea FROM generate_series(1, ?) i`, n)
	f.Exec(`WITH gone AS (DELETE FROM outbox WHERE seq % 3 = 0 RETURNING *)
		INSERT INTO outbox_sent (seq, id, occurred_at, created_at, lane, tenant_id, topic, event_type, source, aggregate_version, schema_version,
			retry_count, crashes, aggregate_type, aggregate_id, content_type, event_metadata, payload, sent_at)
		SELECT seq, id, occurred_at, created_at, lane, tenant_id, topic, event_type, source, 1, 1,
			0, 0, '', '', 'text/plain', event_metadata, payload, now() FROM gone`)
	f.Exec("INSERT INTO outbox_progress (lane, upto, sent, ahead, total) SELECT lane, max(seq), max(seq), '{}', count(*) FROM outbox GROUP BY lane")
	for kind, name := range map[string]*string{"outbox": &log, "outbox_sent": &sent} {
		require.NoError(f.T, f.DB.NewRaw("SELECT tableoid::regclass::text FROM "+kind+" LIMIT 1").Scan(f.T.Context(), name))
	}
	return log, sent
}

// The tables are written anew while published events are read by the places of their rows. It makes no difference.
func TestPublishedEventsAreReadWhileTheirTablesAreWrittenAnew(t *testing.T) {
	t.Parallel()
	const n = 2000
	for name, anew := range map[string]func(f *fixture, log, sent string){
		"CLUSTER": func(f *fixture, log, sent string) {
			f.Exec("CREATE INDEX by_lane ON " + sent + " (lane, seq)")
			f.Exec("CLUSTER " + log + " USING " + log + "_lane_seq_idx")
			f.Exec("CLUSTER " + sent + " USING by_lane")
		},
		"VACUUM FULL": func(f *fixture, log, sent string) {
			f.Exec("VACUUM FULL " + log)
			f.Exec("VACUUM FULL " + sent)
		},
		"moved rows": func(f *fixture, log, _ string) { // as when the child of a day is made late
			f.Exec("CREATE TABLE moved AS SELECT * FROM " + log + " ORDER BY lane, seq")
			f.Exec("WITH gone AS (DELETE FROM " + log + ") INSERT INTO " + log + " SELECT * FROM moved")
		},
	} {
		for reader, read := range map[string]func(f *fixture, to func(context.Context, []event.Envelope) error) error{
			"replay": func(f *fixture, to func(context.Context, []event.Envelope) error) error {
				_, err := f.Published().Replay(t.Context(), published.Filter{TenantID: "t0"}, "order.rebuild", to, &published.Replay{BatchSize: 100})
				return err
			},
			"history": func(f *fixture, to func(context.Context, []event.Envelope) error) error {
				return f.Published().History(published.Filter{TenantID: "t0"})(t.Context(), "",
					func(ctx context.Context, events []event.Envelope, _ string) error { return to(ctx, events) })
			},
		} {
			t.Run(name+"/"+reader, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, nil)
				log, sent := f.kept(n)
				f.Exec("DELETE FROM " + log + " WHERE seq % 16 = 7 AND seq < 200") // places of which VACUUM FULL makes use
				f.Exec("DELETE FROM " + sent + " WHERE seq % 16 = 7 AND seq < 200")
				var want []int64
				require.NoError(t, f.DB.NewRaw("SELECT seq FROM outbox_published WHERE tenant_id = 't0' ORDER BY seq").Scan(t.Context(), &want))
				to, got := collect()
				require.NoError(t, read(f, func(ctx context.Context, events []event.Envelope) error {
					first := len(*got) == 0
					if err := to(ctx, events); err != nil || !first {
						return err
					}
					anew(f, log, sent)
					return nil
				}))
				require.Equal(t, want, sequences(*got)[:len(want)])
			})
		}
	}
}

// A selected row that is gone is reported and not passed over, whatever became of the rest.
func TestReplayOfRowsThatAreGoneFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	log, _ := f.kept(300)
	_, err := f.Published().Replay(t.Context(), published.Filter{}, "order.rebuild", func(context.Context, []event.Envelope) error {
		f.Exec("DELETE FROM " + log + " WHERE seq BETWEEN 110 AND 120")
		f.Exec("VACUUM FULL " + log)
		return nil
	}, &published.Replay{BatchSize: 100})
	require.ErrorContains(t, err, "7 rows no longer exist")
}
