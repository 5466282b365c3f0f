package config_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// A pooler that nobody told us of refuses what it does not know, or, where it ignores that, loses what was prepared.
func TestOpenDBNamesTheSettingsForAPooler(t *testing.T) {
	db := pgtest.Open(t)
	for name, servers := range map[string]int{"another session each time": 8, "always the same one": 1} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Config{DatabaseURL: db.PooledBy(t, servers).DSN}
			_, err := config.OpenDB(t.Context(), cfg)
			require.ErrorContains(t, err, "idle_in_transaction_session_timeout")
			require.ErrorContains(t, err, "set ONCEBOX_POOLER=true")
			require.ErrorContains(t, err, "ONCEBOX_IDLE_IN_TRANSACTION=-1ns")
			require.NotContains(t, err.Error(), "start it", "it has answered")

			cfg.IdleInTransaction = -1
			_, err = config.OpenDB(t.Context(), cfg)
			require.ErrorIs(t, err, pgsql.ErrPooler)
			require.ErrorContains(t, err, "set ONCEBOX_POOLER=true")

			cfg.Pooler = true
			opened, err := config.OpenDB(t.Context(), cfg)
			require.NoError(t, err)
			require.NoError(t, opened.Close())
		})
	}
}

func TestOpenDBSaysWhatTheServerRefuses(t *testing.T) {
	for name, change := range map[string]func(*url.URL){
		"role":     func(u *url.URL) { u.User = url.UserPassword("oncebox_nobody", "x") },
		"database": func(u *url.URL) { u.Path = "/oncebox_none" },
	} {
		u, err := url.Parse(pgtest.URL(t))
		require.NoError(t, err)
		change(u)
		_, err = config.OpenDB(t.Context(), config.Config{DatabaseURL: u.String()})
		require.ErrorContains(t, err, "refuses user, password or database", name)
		require.NotContains(t, err.Error(), "start it", name)
	}
}
