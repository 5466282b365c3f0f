package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Each guide is walked: nothing is lost, nothing comes twice, and the order of each key holds over the switch.
func TestWayOver(t *testing.T) {
	for _, shape := range shapes() {
		t.Run(shape.name, func(t *testing.T) {
			db := pgtest.Open(t)
			box := db.Schema + "_box"
			t.Cleanup(func() { _, _ = db.ExecContext(context.WithoutCancel(t.Context()), "DROP SCHEMA "+box+" CASCADE") })
			// As in a service: pgtest has another mode of sending statements.
			site, err := openSite(t.Context(), strings.Replace(db.DSN, "exec_mode=exec", "exec_mode=cache_statement", 1))
			require.NoError(t, err)
			defer site.close()
			w := &way{shape: shape, site: site, box: box, schema: db.Schema, say: t.Logf}
			got, err := w.walk(t.Context())
			require.NoError(t, err)
			require.Equal(t, report{Events: numberOfOrders * changes * 2 * 4}, got)
		})
	}
}

func TestUnknownShape(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), []string{"kafka"}),
		`there is no example "kafka": choose one of handwritten, debezium, watermill, river, oagudo, masstransit`)
}
