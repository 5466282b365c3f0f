package walk

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

func TestMain(m *testing.M) { pgtest.Main(m, pulsartest.Stop) }

// most is how long the way may be. Changes may only make it shorter. It was 118, 50 and 22 while the adapter for Pulsar had a wire
// format and an account of receipts of its own; now four adapters share them.
var most = Figures{Calls: 127, Files: 61, Returns: 27}

func TestWayOfOneEvent(t *testing.T) {
	db, n := pgtest.OpenApart(t), pulsartest.Open(t) // NOTIFY goes to all sessions of a database, and the relay receives it
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	way, err := Record(ctx, t.TempDir(), []string{
		"ONCEBOX_DATABASE_URL=" + db.DSN, "ONCEBOX_PULSAR_URL=" + n.URL, "ONCEBOX_PULSAR_ADMIN_URL=" + n.AdminURL,
		"ONCEBOX_PULSAR_NAMESPACE=" + n.Name[len("public/"):],
	})
	require.NoError(t, err)
	t.Logf("\n%s\nall functions: %+v; those that are read: %+v", way, FiguresOf(way.All()), FiguresOf(way.Read()))
	for name, stretch := range map[string][]Stop{"write": way.Write, "relay": way.Relay, "receive": way.Receive} {
		require.NotEmpty(t, stretch, name)
	}
	figures := FiguresOf(way.Read())
	require.LessOrEqual(t, figures.Calls, most.Calls)
	require.LessOrEqual(t, figures.Files, most.Files)
	require.LessOrEqual(t, figures.Returns, most.Returns)

	text, err := os.ReadFile("../../" + Page)
	require.NoError(t, err)
	described, err := Described(string(text))
	require.NoError(t, err)
	for _, m := range described.OutOfOrder(way) {
		t.Error(m)
	}
}

func TestFigures(t *testing.T) {
	a, b, c := Stop{File: "uow/a.go"}, Stop{File: "uow/b.go"}, Stop{File: "outbox/c.go"}
	require.Equal(t, Figures{Calls: 6, Files: 3, Returns: 2}, FiguresOf([]Stop{a, a, b, a, c, b}))
	require.Zero(t, FiguresOf(nil))
}

func TestShortFunctionsAndMachineryAreNotRead(t *testing.T) {
	read := Stop{"uow/a.go", "Do", shortest}
	way := Way{Write: []Stop{read, {"uow/a.go", "is", shortest - 1}}, Relay: []Stop{{"internal/pgsql/a.go", "Query", 100}}, Receive: []Stop{read}}
	require.Equal(t, []Stop{read, read}, way.Read())
}
