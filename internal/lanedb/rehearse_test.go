package lanedb_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
)

// If a role lacks a right that a projector needs, the rehearsal reports it. A role that lacks another right can work.
func TestRehearsalFindsEachRightThatServingNeeds(t *testing.T) {
	t.Parallel()
	needs := map[string]string{ // S read, I insert, U update, D delete
		"outbox": "SUD", "outbox_lane": "SU", "outbox_claim": "SID", "outbox_progress": "SI", "outbox_cursor": "S", "outbox_held": "SIUD",
		"outbox_block": "SIUD", "outbox_dead": "I", "outbox_sent": "I", "oncebox_settings": "SU", "outbox_tenant": "S",
		"outbox_incarnation": "SI",
	}
	sequences := []string{"outbox_seq", "outbox_claim_n", "outbox_progress_n"}
	db := pgtest.Migrated(t, pgtest.Outbox)
	role := db.Schema
	exec := func(statement string) {
		t.Helper()
		_, err := db.Exec(fmt.Sprintf(statement, role))
		require.NoError(t, err, statement)
	}
	exec("CREATE ROLE %[1]s LOGIN PASSWORD 'x'")
	t.Cleanup(func() { exec("DROP OWNED BY %[1]s; DROP ROLE %[1]s") })
	exec("GRANT USAGE ON SCHEMA %[1]s TO %[1]s; GRANT ALL ON ALL TABLES IN SCHEMA %[1]s TO %[1]s; GRANT ALL ON ALL SEQUENCES IN SCHEMA %[1]s TO %[1]s")
	as, err := url.Parse(db.DSN)
	require.NoError(t, err)
	as.User = url.UserPassword(role, "x")
	pool := (&pgtest.DB{Schema: db.Schema, DSN: as.String()}).Another(t)
	rehearse := func(cfg outbox.Config) error {
		return lanedb.Of(outbox.NewStore(pool, &cfg).Handle()).Leases.Rehearse(t.Context(), "me", 0, time.Minute)
	}
	for _, cfg := range []outbox.Config{{}, {Retention: outbox.NoRetention}, {Pooler: true}} {
		require.NoError(t, rehearse(cfg))
	}
	var relations []string
	require.NoError(t, db.NewRaw(`SELECT relname FROM pg_class WHERE relnamespace = ?::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition
		AND relname LIKE 'outbox%'`, db.Schema).Scan(t.Context(), &relations))
	require.Greater(t, len(relations), len(needs))
	for _, relation := range relations {
		for right, letter := range map[string]string{"SELECT": "S", "INSERT": "I", "UPDATE": "U", "DELETE": "D"} {
			of := right + " ON " + relation
			exec("REVOKE " + of + " FROM %[1]s")
			err := rehearse(outbox.Config{})
			if strings.Contains(needs[relation], letter) {
				require.True(t, lanedb.IsMisfit(err), "%s: %v", of, err)
				require.ErrorContains(t, err, relation, of)
			} else {
				require.NoError(t, err, of)
			}
			exec("GRANT " + of + " TO %[1]s")
		}
	}
	for _, sequence := range sequences {
		exec("REVOKE ALL ON SEQUENCE " + sequence + " FROM %[1]s")
		err := rehearse(outbox.Config{})
		require.True(t, lanedb.IsMisfit(err), "%s: %v", sequence, err)
		exec("GRANT USAGE ON SEQUENCE " + sequence + " TO %[1]s")
	}
	require.NoError(t, rehearse(outbox.Config{}), "it has all rights again")
	_, err = db.Exec("ALTER TABLE outbox_progress RENAME COLUMN total TO other") // another build
	require.NoError(t, err)
	require.True(t, lanedb.IsMisfit(rehearse(outbox.Config{})))
}
