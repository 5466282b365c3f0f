package projector_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
)

// imported are events that come before any projector sees what was restored. With them the sequence is beyond the numbers of before.
const imported = `SELECT oncebox_add('order', to_jsonb(n), 'imported ' || n, aggregate_type => 'order', aggregate_id => 'k' || n % 5,
	aggregate_version => 1, source => 'test') FROM generate_series(1, 200) n`

// A projector lives on while its database is put back to what it was. None of the ways says so by a crash of the server, by its timeline or by a
// lower number, and each keeps the row of outbox_incarnation with its id. What the database has afterwards leaves, in the order of its keys.
func TestProjectorLivesOnWhileItsDatabaseIsRestored(t *testing.T) {
	t.Parallel()
	// save takes a copy of the present data, and returns a function that restores it by an import.
	for name, save := range map[string]func(t *testing.T, db *pgtest.Apart) (restore func()){
		"a template": func(t *testing.T, db *pgtest.Apart) func() {
			kept := db.Copy(t)
			return func() {
				_, err := kept.Exec(imported)
				require.NoError(t, err)
				db.Swap(t, kept)
			}
		},
		"a dump in another database": func(t *testing.T, db *pgtest.Apart) func() {
			dump, other := pgtest.TakeDump(t, db.DB), db.Beside(t)
			return func() {
				dump.Restore(t, other.DB, imported)
				db.Swap(t, other)
			}
		},
		"a dump in another schema": func(t *testing.T, db *pgtest.Apart) func() {
			dump, other := pgtest.TakeDump(t, db.DB), pgtest.MigratedAt(t, db.URL)
			return func() {
				dump.Restore(t, other, imported)
				_, err := db.Exec(fmt.Sprintf("ALTER SCHEMA %[1]s RENAME TO %[1]s_old; ALTER SCHEMA %[2]s RENAME TO %[1]s; "+
					"ALTER SCHEMA %[1]s_old RENAME TO %[2]s", db.Schema, other.Schema))
				require.NoError(t, err)
			}
		},
		"a dump in the same tables": func(t *testing.T, db *pgtest.Apart) func() {
			dump := pgtest.TakeDump(t, db.DB)
			return func() { dump.Restore(t, db.DB, imported) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.OpenApart(t)
			db.SetMaxIdleConns(0) // sessions are ended
			f := &fixture{t: t, db: db.DB, store: outbox.NewStore(db.DB.DB, &outbox.Config{Source: "test"}), pub: &recorder{}}
			f.run(f.relay(f.pub, patient(), outbox.NewStore(db.DB.DB, nil)))
			drained := func() {
				t.Helper()
				f.eventually("all is sent", func() bool {
					var waits int
					err := db.NewRaw("SELECT count(*) FROM outbox_messages WHERE status <> 'SENT'").Scan(t.Context(), &waits)
					return err == nil && waits == 0
				})
			}
			addMany(f, 0, 5)
			drained()
			restore := save(t, db)
			addMany(f, 5, 20)
			drained()
			restore()
			addMany(f, 25, 5)
			drained()

			var ids []string
			require.NoError(t, db.NewRaw("SELECT id FROM outbox_messages ORDER BY sequence").Scan(t.Context(), &ids))
			f.pub.requireAllOf(t, ids)
		})
	}
}

// requireAllOf fails if one of the events was never taken, or was overtaken by a later one of its key. They are in the order in which they were
// recorded, and others may have been taken.
func (r *recorder) requireAllOf(t *testing.T, ids []string) {
	t.Helper()
	place := map[string]int{}
	for i, id := range ids {
		place[id] = i + 1
	}
	seen, last := map[string]bool{}, map[string]int{}
	for _, m := range r.events() {
		at := place[m.ID]
		if at == 0 || seen[m.ID] {
			continue
		}
		seen[m.ID] = true
		require.Greater(t, at, last[m.AggregateID], "%s was overtaken under its key", m.AggregateID)
		last[m.AggregateID] = at
	}
	lost := 0
	for _, id := range ids {
		if !seen[id] {
			lost++
		}
	}
	require.Zero(t, lost, "events that are called SENT and were never published, of %d", len(ids))
}
