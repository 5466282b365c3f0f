package serve

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// A service on the database of another one makes no tables there, neither oncebox's nor its own. At the first start there are no tables to look at.
func TestNoTablesInTheDatabaseOfAnotherService(t *testing.T) {
	db := pgtest.Open(t)
	prepare := func(source string, migrate bool) error {
		cfg := apptest.Config()
		cfg.UoW.Source = source
		app, err := oncebox.New(db.DB, nil, cfg)
		require.NoError(t, err)
		p := &process{cfg: Config{Migrate: migrate}, service: Service{Source: source, Migrate: Tables("CREATE TABLE IF NOT EXISTS of_" + source + " (n int)")}}
		return p.prepare(t.Context(), app, db.DB)
	}
	start := func(source string) error { return prepare(source, true) }
	owned := func(consumer, source string) {
		_, err := db.ExecContext(t.Context(), "INSERT INTO inbox_consumer (consumer, source) VALUES (?, ?)", consumer, source)
		require.NoError(t, err)
	}
	require.NoError(t, prepare("mailer", false), "there are no tables, which is an error of its own later")
	require.NoError(t, start("mailer"))
	require.NoError(t, start("shop"), "no consumer has run, so the database is anybody's")
	owned("mails", "mailer")
	owned("more_mails", "mailer")

	var refused *oncebox.ForeignError
	require.ErrorAs(t, start("tickets"), &refused)
	require.Equal(t, oncebox.ForeignError{Source: "tickets", Owners: []string{"mailer"}}, *refused)
	require.ErrorAs(t, prepare("tickets", false), &refused, "before Setup, which may write")
	var made bool
	require.NoError(t, db.NewRaw("SELECT to_regclass('of_tickets') IS NOT NULL").Scan(t.Context(), &made))
	require.False(t, made)

	owned("seats", "tickets")
	require.NoError(t, start("tickets"), "its own consumers have run here")
}
