package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/adopt"
)

// What is suggested for the real tables fits them: only names that no table knows have to be written by a person.
func TestSuggestions(t *testing.T) {
	for _, shape := range shapes() {
		t.Run(shape.name, func(t *testing.T) {
			db := pgtest.Open(t)
			box := db.Schema + "_box"
			t.Cleanup(func() { _, _ = db.ExecContext(context.WithoutCancel(t.Context()), "DROP SCHEMA "+box+" CASCADE") })
			site, err := openSite(t.Context(), strings.Replace(db.DSN, "exec_mode=exec", "exec_mode=cache_statement", 1))
			require.NoError(t, err)
			defer site.close()
			_, err = db.ExecContext(t.Context(), tables+"; INSERT INTO orders VALUES ('o-1')")
			require.NoError(t, err)
			old, err := shape.open(t.Context(), site)
			require.NoError(t, err)
			require.NoError(t, old.change(t.Context(), "o-1"))
			require.NoError(t, migrations.Up(t.Context(), site.db, &migrations.Config{Schema: box}))

			tested, err := shape.mapping(db.Schema)
			require.NoError(t, err)
			m, notes, err := adopt.Suggest(t.Context(), site.db, tested.Table)
			require.NoError(t, err)
			m.Where = strings.Replace(m.Where, "'write', 'the', 'kinds'", "'publish_event'", 1) // as the notes ask for
			mover, err := adopt.New(t.Context(), outbox.NewStore(site.db, &outbox.Config{Schema: box, Source: "shop"}), m, nil)
			require.NoError(t, err)
			p, err := mover.Preview(t.Context(), 1)
			require.NoError(t, err)
			require.Empty(t, p.Problems)
			require.Len(t, p.First, 1)
			require.Contains(t, string(p.First[0].Payload), `o-1`)
			require.Equal(t, tested.ID, m.ID)
			require.Equal(t, tested.Order, m.Order)
			require.Equal(t, tested.Delete, m.Delete)
			if shape.name == "watermill" {
				require.Equal(t, tested.Topic, m.Topic)
				require.Contains(t, strings.Join(notes, "\n"), "key: write which entry of the metadata is the key")
			}
		})
	}
}
