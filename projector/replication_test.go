package projector_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
)

// A reader of the log (WAL), as Debezium is one, sees each event once, in the order of the commits, and no other change: whatever the relay
// does with the rows. docs/change-data-capture.md tells how to set it up. Somebody publishes all tables besides: then PostgreSQL deletes only from
// tables that have an identity.
func TestLogicalReplicationSeesEachEventOnce(t *testing.T) {
	t.Setenv("DATABASE_URL", "") // a server of its own
	server, err := devenv.Postgres(t.Context(), &devenv.Options{Out: io.Discard})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	admin, err := pgx.Connect(t.Context(), server.URL)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "ALTER SYSTEM SET wal_level = 'logical'")
	require.NoError(t, err)
	require.NoError(t, admin.Close(t.Context()))
	require.NoError(t, server.Restart(t.Context()))

	db := pgtest.MigratedAt(t, server.URL)
	for _, statement := range []string{
		"CREATE PUBLICATION oncebox_events FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)",
		"CREATE PUBLICATION everything FOR ALL TABLES",
		"SELECT pg_create_logical_replication_slot('oncebox_events', 'pgoutput')",
	} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	f := &fixture{t: t, db: db, pub: &recorder{}, store: outbox.NewStore(db.DB, &outbox.Config{Source: "test"})}
	tries := 0
	f.pub.refuseWith(func(e event.Envelope) error {
		if tries++; tries%5 == 0 {
			return errors.New("not now")
		}
		return nil
	})
	cfg := quick()
	cfg.MaxRetryAttempts = -1 // chance may refuse one event many times in a row
	f.run(f.projector(cfg))
	var committed []string
	for i := range 100 {
		committed = append(committed, f.add(fmt.Sprint("k", i%10), fmt.Sprint("e", i)))
	}
	f.store.Wake()
	f.eventually("all are sent", func() bool { return f.rows("outbox_messages WHERE status = 'SENT'") == len(committed) })
	require.Positive(t, f.rows("outbox_sent"), "some left out of their turn")

	var changes [][]byte
	require.NoError(t, db.NewRaw(`SELECT data FROM pg_logical_slot_get_binary_changes('oncebox_events', NULL, NULL,
		'proto_version', '1', 'publication_names', 'oncebox_events')`).Scan(t.Context(), &changes))
	relations := map[uint32]string{}
	var inserted []string
	for _, c := range changes {
		switch c[0] {
		case 'B', 'C': // BEGIN and COMMIT
		case 'R':
			relations[binary.BigEndian.Uint32(c[1:])] = relationName(c)
		case 'I':
			require.Equal(t, "outbox", relations[binary.BigEndian.Uint32(c[1:])], "by the name of the table and not of its day")
			inserted = append(inserted, column(c, 1))
		default:
			require.Failf(t, "another change", "%c", c[0])
		}
	}
	require.Equal(t, committed, inserted)
}

// relationName reads a Relation message of the logical replication protocol: PostgreSQL 15, chapter 55.9.
func relationName(message []byte) string {
	rest := message[5:] // kind and id
	for rest[0] != 0 {  // the schema
		rest = rest[1:]
	}
	rest = rest[1:]
	end := 0
	for rest[end] != 0 {
		end++
	}
	return string(rest[:end])
}

// column reads a column of an Insert message.
func column(message []byte, n int) string {
	rest := message[8:] // kind, id, 'N', number of columns
	for ; ; n-- {
		kind := rest[0]
		rest = rest[1:]
		if kind != 't' {
			continue
		}
		size := binary.BigEndian.Uint32(rest)
		if n == 0 {
			return string(rest[4 : 4+size])
		}
		rest = rest[4+size:]
	}
}
