package doctor_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/doctor"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/commandtest"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/diagnosis"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/adopt"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m, pulsartest.Stop) }

// setUp is a service without faults, on a server of its own.
type setUp struct {
	t      *testing.T
	server *pgtest.Own
	db     *pgtest.DB
	pulsar *pulsartest.Namespace
	second *pulsar.Broker
}

// publish publishes a message that nobody receives: from a database with this id, and goes on, or from none.
func (s *setUp) publish(installation string) {
	s.t.Helper()
	b, err := pulsar.Connect(s.t.Context(), s.broker())
	require.NoError(s.t, err)
	if s.second = b; installation != "" {
		b.Introduce("shop", installation)
	} else {
		defer func() { require.NoError(s.t, b.Close()) }()
	}
	require.NoError(s.t, b.Publish(s.t.Context(), []event.Envelope{{ID: "1", Type: "order.placed", Topic: "order", Source: "shop", Payload: []byte("{}")}}))
}

// skip settles what waits.
func (s *setUp) skip() {
	s.admin(http.MethodPost, "/persistent/{ns}/order/subscription/billing/skip_all", "")
}

func newSetUp(t *testing.T) *setUp {
	t.Helper()
	s := &setUp{t: t, pulsar: pulsartest.Open(t)}
	s.server = pgtest.Start(t, map[string]string{"max_prepared_transactions": "2"})
	s.db = s.server.Migrated(t)
	s.makePartitions()
	broker, err := pulsar.Connect(t.Context(), s.broker())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	commandtest.Use(t, broker, "order")
	return s
}

func (s *setUp) makePartitions() {
	s.t.Helper()
	cfg := s.config()
	require.NoError(s.t, outbox.NewStore(s.db.DB, &cfg.Outbox).Upkeep().EnsurePartitions(s.t.Context()))
	require.NoError(s.t, inbox.New(uow.New(s.db.DB, &cfg.UoW), &cfg.Inbox).EnsurePartitions(s.t.Context()))
}

func (s *setUp) config() config.Config {
	cfg := config.Config{Schema: s.db.Schema, Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}}
	cfg.UoW.Source = "shop"
	return cfg.Shared()
}

func (s *setUp) broker() *pulsar.Config {
	tenant, namespace, _ := strings.Cut(s.pulsar.Name, "/")
	return &pulsar.Config{
		URL: s.pulsar.URL, AdminURL: s.pulsar.AdminURL, Tenant: tenant, Namespace: namespace, Partitions: 2,
		Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)},
	}
}

func (s *setUp) target() doctor.Target {
	return doctor.Target{DB: s.db.DB, Config: s.config(), Broker: s.kind(nil)}
}

// kind is the broker of the service, with a change of its configuration.
func (s *setUp) kind(change func(*pulsar.Config)) *brokers.Kind {
	k := pulsar.Kind()
	k.Connect = func(ctx context.Context, o brokers.Options) (brokers.Connection, error) {
		cfg := s.broker()
		cfg.AdminTimeout, cfg.CloseTimeout = time.Minute, time.Minute
		if change != nil {
			change(cfg)
		}
		b, err := pulsar.Connect(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	return &k
}

func (s *setUp) exec(statements ...string) {
	s.t.Helper()
	for _, statement := range statements {
		_, err := s.db.ExecContext(s.t.Context(), statement)
		require.NoError(s.t, err, statement)
	}
}

// configure changes a setting of the server, and waits until sessions see it.
func (s *setUp) configure(name, value string) {
	s.t.Helper()
	s.exec("ALTER SYSTEM SET "+name+" = "+value, "SELECT pg_reload_conf()")
	await.True(s.t, func() bool {
		var now string
		require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), "SELECT current_setting(?)", name).Scan(&now))
		return now == value
	}, "%s is %s", name, value)
}

func (s *setUp) admin(method, path, body string) {
	s.t.Helper()
	require.NoError(s.t, s.pulsar.Admin(s.t.Context(), method, strings.ReplaceAll(path, "{ns}", s.pulsar.Name), body))
}

// plant is a fault, how it is taken away again, and what is found.
type plant struct {
	fault, mend func(*setUp)
	change      func(*setUp, *doctor.Target) // of what is examined, in place of a fault
	check       string
	says        string
}

var plants = map[string]plant{
	"another schema": {
		change: func(_ *setUp, t *doctor.Target) { t.Config.Schema = "empty" },
		check:  "tables", says: "set ONCEBOX_SCHEMA to that schema",
	},
	"the broker's own address is wrong": {
		change: func(s *setUp, t *doctor.Target) {
			t.Broker = s.kind(func(c *pulsar.Config) { c.URL = "pulsar://127.0.0.1:1,[::1]:1" })
		},
		check: "connection", says: "correct ONCEBOX_PULSAR_URL",
	},
	"no name": {
		change: func(_ *setUp, t *doctor.Target) { t.Config.UoW.Source = "" },
		check:  "source", says: "set ONCEBOX_SOURCE",
	},
	"the inbox forgets before the outbox": {
		change: func(_ *setUp, t *doctor.Target) { t.Config.Inbox.Retention = 48 * time.Hour },
		check:  "retention", says: "raise ONCEBOX_INBOX_RETENTION above 168h0m0s",
	},
	"sessions end within handlers": {
		change: func(_ *setUp, t *doctor.Target) { t.Config.IdleInTransaction = time.Second },
		check:  "handler-timeout", says: "raise ONCEBOX_IDLE_IN_TRANSACTION to 5m0s",
	},
	"no fsync": {
		fault: func(s *setUp) { s.configure("fsync", "off") }, mend: func(s *setUp) { s.configure("fsync", "on") },
		check: "durability", says: "fsync is off",
	},
	"torn pages": {
		fault: func(s *setUp) { s.configure("full_page_writes", "off") }, mend: func(s *setUp) { s.configure("full_page_writes", "on") },
		check: "durability", says: "full_page_writes is off",
	},
	"commits that a crash loses": {
		fault: func(s *setUp) { s.configure("synchronous_commit", "off") }, mend: func(s *setUp) { s.configure("synchronous_commit", "on") },
		check: "durability", says: "synchronous_commit is off",
	},
	"read-only": {
		change: func(s *setUp, t *doctor.Target) { t.DB = s.with("default_transaction_read_only", "on") },
		check:  "writable", says: "transactions are read-only",
	},
	"no vacuum": {
		fault: func(s *setUp) { s.configure("autovacuum", "off") }, mend: func(s *setUp) { s.configure("autovacuum", "on") },
		check: "autovacuum", says: "autovacuum is off",
	},
	"no vacuum of a table": {
		fault: func(s *setUp) { s.exec("ALTER TABLE outbox_held SET (autovacuum_enabled = false)") },
		check: "tables", says: "option autovacuum_enabled of outbox_held",
	},
	"statements are ended": {
		change: func(s *setUp, t *doctor.Target) { t.DB = s.with("statement_timeout", "5s") },
		check:  "timeouts", says: "statement_timeout is 5s",
	},
	"more connections than there are": {
		change: func(_ *setUp, t *doctor.Target) { t.DB.SetMaxOpenConns(10_000) },
		check:  "connections", says: "one process may open 10000 connections",
	},
	"a clock that is wrong": {
		change: func(_ *setUp, t *doctor.Target) { t.Now = func() time.Time { return time.Now().Add(-time.Minute) } },
		check:  "clock", says: "run NTP",
	},
	"a snapshot that is held": {
		fault: func(s *setUp) {
			s.exec("BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE TABLE prepared (); PREPARE TRANSACTION 'forgotten'")
		},
		mend:   func(s *setUp) { s.exec("ROLLBACK PREPARED 'forgotten'") },
		change: func(_ *setUp, t *doctor.Target) { t.LongTransaction = time.Nanosecond },
		check:  "snapshots", says: "ROLLBACK PREPARED 'forgotten'",
	},
	"a transaction of another database": {
		fault: func(s *setUp) {
			s.exec("CREATE DATABASE elsewhere")
			conn := s.elsewhere()
			_, err := conn.Exec(s.t.Context(), "BEGIN; CREATE TABLE written ()")
			require.NoError(s.t, err)
			s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
		},
		mend: func(s *setUp) {
			s.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'elsewhere'", "DROP DATABASE elsewhere WITH (FORCE)")
		},
		change: func(_ *setUp, t *doctor.Target) { t.LongTransaction = time.Nanosecond },
		check:  "snapshots", says: "database elsewhere) is 00:00:0",
	},
	"a pooler of transactions": {
		change: func(s *setUp, t *doctor.Target) { t.DB = s.db.Pooled(s.t).DB },
		check:  "pooler", says: "set ONCEBOX_POOLER=true",
	},
	"a missing index": {
		fault: func(s *setUp) { s.exec("DROP INDEX inbox_dead_tenant") },
		check: "tables", says: "CREATE INDEX",
	},
	"objects of everybody": {
		fault: func(s *setUp) { s.exec("GRANT CREATE ON SCHEMA " + s.db.Schema + " TO PUBLIC") },
		mend:  func(s *setUp) { s.exec("REVOKE CREATE ON SCHEMA " + s.db.Schema + " FROM PUBLIC") },
		check: "schema", says: "REVOKE CREATE ON SCHEMA",
	},
	"a missing grant": {
		fault: func(s *setUp) {

			s.exec("CREATE ROLE app")
			statements, err := migrations.Grants(s.t.Context(), s.db.DB, &migrations.Config{Schema: s.db.Schema}, migrations.Service, "app")
			require.NoError(s.t, err)
			s.exec(append(statements, "REVOKE INSERT ON outbox_dead FROM app")...)

		},
		mend:   func(s *setUp) { s.exec("DROP OWNED BY app; DROP ROLE app") },
		change: func(s *setUp, t *doctor.Target) { t.DB = s.with("role", "app") },
		check:  "grants", says: `."outbox_dead" TO "app"`,
	},
	"no partition for tomorrow": {
		fault: func(s *setUp) {
			s.exec("DROP TABLE outbox_" + time.Now().UTC().Add(24*time.Hour).Format("20060102"))
		},
		mend:  (*setUp).makePartitions,
		check: "partitions", says: "outbox_make_partition(",
	},
	"a restored copy": {
		fault: func(s *setUp) { s.exec("UPDATE oncebox_settings SET deployment = 'production'") },
		mend:  func(s *setUp) { s.exec("UPDATE oncebox_settings SET deployment = NULL") },
		check: "deployment", says: `the database belongs to deployment "production", but ONCEBOX_OUTBOX_DEPLOYMENT is ""`,
	},
	"a tenant that somebody has forgotten": {
		fault: func(s *setUp) {
			s.exec("INSERT INTO outbox_tenant (tenant_id, paused_by, pause_reason, paused_at) VALUES ('acme', 'ann', 'night', now() - interval '25 hours'), " +
				"('new', 'ann', 'night', now() - interval '23 hours')")
		},
		mend:  func(s *setUp) { s.exec("UPDATE outbox_tenant SET resumed_at = now() WHERE paused_at IS NOT NULL") },
		check: "pauses", says: "ann did so: night: if that was forgotten: oncebox tenants resume acme",
	},
	"a forgotten pause of a consumer": {
		fault: func(s *setUp) {
			s.exec("INSERT INTO inbox_pause VALUES ('mailer', now() - interval '25 hours', 'ann', 'night', '2100-01-01'), " +
				"('new', now() - interval '23 hours', 'ann', 'night', NULL), ('over', now() - interval '2 days', 'ann', 'night', now() - interval '1 day')")
		},
		mend:  func(s *setUp) { s.exec("DELETE FROM inbox_pause") },
		check: "pauses", says: "until 2100-01-01T00:00:00Z, so its messages wait; ann did so: night: if that was forgotten: oncebox consumers resume mailer",
	},
	"an old table that nobody moves": {
		fault: func(s *setUp) {
			s.adopt(false)
			s.exec("INSERT INTO old (n) VALUES ('2')", "UPDATE outbox_adopted SET looked_at = looked_at - interval '2 minutes'")
		},
		mend:  (*setUp).endAdoption,
		check: "adopted", says: "(1), and no process moves them: start oncebox adopt",
	},
	"a row of an old table that is no event": {
		fault: func(s *setUp) { s.adopt(false); s.exec("UPDATE outbox_adopted SET stay = 1") },
		mend:  (*setUp).endAdoption,
		check: "adopted", says: "no event can be made of 1 row of",
	},
	"a mover that fails": {
		fault: func(s *setUp) {
			s.adopt(false)
			s.exec("UPDATE outbox_adopted SET error = 'no right', failed_at = now()")
		},
		mend:  (*setUp).endAdoption,
		check: "adopted", says: "no right: mend what the error says",
	},
	"a trigger of an old table that is off": {
		fault: func(s *setUp) { s.adopt(true); s.exec("ALTER TABLE old DISABLE TRIGGER oncebox_forward") },
		mend:  (*setUp).endAdoption,
		check: "adopted", says: "ENABLE TRIGGER oncebox_forward",
	},
	"a switch that nobody has ended": {
		fault: func(s *setUp) {
			s.adopt(true)
			s.exec("UPDATE outbox_adopted SET since = since - interval '8 days', written_at = NULL, looked_at = NULL")
		},
		mend:  (*setUp).endAdoption,
		check: "adopted", says: "still forwarded, and no old code has written to it since",
	},
	"an old table that was dropped": {
		fault: func(s *setUp) { s.adopt(false); s.exec("DROP TABLE old") },
		mend:  (*setUp).endAdoption,
		check: "adopted", says: "there is no table",
	},
	"a dead letter that somebody has deleted": {
		fault: func(s *setUp) { s.exec("INSERT INTO outbox_block VALUES (7, 'order|a', 1, 'dead')") },
		mend:  func(s *setUp) { s.exec("DELETE FROM outbox_block") },
		check: "keys", says: `such as "order|a": BEGIN; UPDATE `,
	},
	"an unpartitioned topic": {
		fault: func(s *setUp) {
			s.admin(http.MethodPut, "/persistent/{ns}/plain", "")
			s.admin(http.MethodPut, "/persistent/{ns}/plain/subscription/mail", "")
		},
		mend:  func(s *setUp) { s.admin(http.MethodDelete, "/persistent/{ns}/plain?force=true", "") },
		check: "broker", says: "topic plain: it has no partitions",
	},
	"a topic that nobody keeps": {
		fault: func(s *setUp) { s.admin(http.MethodPut, "/persistent/{ns}/lost/partitions", "2") },
		mend:  func(s *setUp) { s.admin(http.MethodDelete, "/persistent/{ns}/lost/partitions?force=true", "") },
		check: "broker", says: "topic lost: it has no subscription and no retention",
	},
	"messages that expire": {
		fault: func(s *setUp) { s.admin(http.MethodPost, "/namespaces/{ns}/messageTTL", "60") },
		mend:  func(s *setUp) { s.admin(http.MethodDelete, "/namespaces/{ns}/messageTTL", "") },
		check: "broker", says: "dropped after 1m0s",
	},
	"a backlog that is dropped": {
		fault: func(s *setUp) {
			s.admin(http.MethodPost, "/namespaces/{ns}/backlogQuota", `{"limitSize":1000000,"policy":"consumer_backlog_eviction"}`)
		},
		mend:  func(s *setUp) { s.admin(http.MethodDelete, "/namespaces/{ns}/backlogQuota", "") },
		check: "broker", says: "--policy producer_request_hold",
	},
	"the inbox forgets before the broker": {
		fault: func(s *setUp) {
			s.admin(http.MethodPost, "/namespaces/{ns}/retention", `{"retentionTimeInMinutes":43200,"retentionSizeInMB":-1}`)
		},
		mend:  func(s *setUp) { s.admin(http.MethodDelete, "/namespaces/{ns}/retention", "") },
		check: "broker", says: "topic order: it keeps messages for 720h0m0s",
	},
	"two services under one consumer name": {
		fault: func(s *setUp) {
			s.exec("INSERT INTO inbox_consumer (consumer, source) VALUES ('billing', 'bank') ON CONFLICT (consumer) DO UPDATE SET source = 'bank'")
		},
		mend:  func(s *setUp) { s.exec("UPDATE inbox_consumer SET source = NULL") },
		check: "broker", says: "the subscription billing belongs to the service shop, and in this database the consumer of that name belongs to bank",
	},
	"an address that is not the broker's": {
		change: func(s *setUp, t *doctor.Target) {
			t.Broker = s.kind(func(c *pulsar.Config) { c.URL = "pulsar" + strings.TrimPrefix(c.AdminURL, "http") })
		},
		check: "connection", says: "this is a web server",
	},
	"messages that nobody receives": {
		fault: func(s *setUp) { s.publish("") },
		mend:  (*setUp).skip,
		check: "broker", says: "the subscription billing of the service shop has 1 message that waits, and no consumer is connected: start a process",
	},
	"processes that are cut off from the broker": {
		fault: func(s *setUp) {
			s.publish("")
			s.exec("INSERT INTO inbox_consumer (consumer) VALUES ('billing') ON CONFLICT DO NOTHING",
				"INSERT INTO inbox_process (process, name, consumer, topic, state, since, unsettled, error, seen_until) VALUES (gen_random_uuid(), 'host-1', "+
					"'billing', 'order', 'AWAY', '2026-11-26 10:00Z', 0, 'refused', now() + interval '1 hour')")
		},
		mend:  func(s *setUp) { s.skip(); s.exec("DELETE FROM inbox_process", "DELETE FROM inbox_consumer") },
		check: "broker", says: "the processes that run the consumer billing (host-1) have lacked connections to it since 2026-11-26T10:00:00Z: " +
			"refused: mend the connection from these processes to the broker",
	},
	"a relay that does not get on": {
		fault: func(s *setUp) {
			s.exec("UPDATE outbox_lane SET owner = 'host-1', lease_until = now() + interval '1 hour'")
			s.record()
			s.exec("UPDATE outbox SET created_at = created_at - interval '5 minutes'")
		},
		mend: func(s *setUp) {
			s.exec("UPDATE outbox_lane SET owner = NULL, lease_until = '-infinity'", "TRUNCATE outbox CASCADE")
		},
		check: "broker", says: "the relay host-1 is responsible for the waiting events, but they have waited since",
	},
	"a topic to which nobody publishes": {
		fault: func(s *setUp) {
			s.admin(http.MethodPut, "/persistent/{ns}/blue.order/partitions", "2")
			s.admin(http.MethodPut, "/persistent/{ns}/blue.order/subscription/billing",
				`{"ledgerId":-1,"entryId":-1,"partitionIndex":-1,"properties":{"oncebox.source":"shop"}}`)
		},
		mend:  func(s *setUp) { s.admin(http.MethodDelete, "/persistent/{ns}/blue.order/partitions?force=true", "") },
		check: "broker", says: "nobody has ever published to it, so the subscription billing of this service gets no message, and there are messages in " +
			"topic order: if that is the topic that was meant, correct the name or ONCEBOX_TOPIC_PREFIX",
	},
	"a second database has the subscription": {
		fault: func(s *setUp) {
			s.admin(http.MethodPut, "/persistent/{ns}/order/subscription/billing/properties", `{"oncebox.source":"shop","oncebox.installation":"other"}`)
		},
		mend: func(s *setUp) {
			s.admin(http.MethodPut, "/persistent/{ns}/order/subscription/billing/properties", `{"oncebox.source":"shop"}`)
		},
		check: "broker", says: "the service shop with another database (installation other) has the subscription billing",
	},
	"a second database publishes": {
		fault: func(s *setUp) { s.publish("other"); s.skip() },
		mend:  func(s *setUp) { require.NoError(s.t, s.second.Close()) },
		check: "broker", says: "the service shop with another database (installation other) publishes to it",
	},
	"a broker that does not answer": {
		change: func(s *setUp, t *doctor.Target) {
			t.Broker = s.kind(func(c *pulsar.Config) { c.AdminURL = "http://127.0.0.1:1" })
		},
		check: "broker", says: "ONCEBOX_PULSAR_ADMIN_URL",
	},
}

// adopt takes over an old table with one row, and forwards its rows if it is told to.
func (s *setUp) adopt(forward bool) {
	s.t.Helper()
	s.exec("CREATE TABLE old (id bigserial PRIMARY KEY, n text)", "INSERT INTO old (n) VALUES ('1')")
	mapping := &adopt.Mapping{Table: "old", ID: "{id}", Topic: "order", Payload: "{n}", Order: []string{"id"}, Delete: true}
	cfg := s.config()
	m, err := adopt.New(s.t.Context(), outbox.NewStore(s.db.DB, &cfg.Outbox), mapping, nil)
	require.NoError(s.t, err)
	_, err = m.Once(s.t.Context())
	require.NoError(s.t, err)
	if forward {
		require.NoError(s.t, m.Forward(s.t.Context()))
	}
	s.exec("TRUNCATE outbox CASCADE") // events that wait are another finding
}

func (s *setUp) endAdoption() {
	s.exec("DROP TABLE IF EXISTS old CASCADE", "DELETE FROM outbox_adopted",
		"DO $$ DECLARE f text; BEGIN FOR f IN SELECT oid::regprocedure FROM pg_proc WHERE proname LIKE 'oncebox_forward%' "+
			"LOOP EXECUTE 'DROP FUNCTION ' || f; END LOOP; END $$")
}

type orderPlaced struct{}

func (orderPlaced) EventType() string { return "order.placed" }

// elsewhere is a session in another database of the server.
func (s *setUp) elsewhere() *pgx.Conn {
	s.t.Helper()
	cfg, err := pgx.ParseConfig(s.server.URL)
	require.NoError(s.t, err)
	cfg.Database = "elsewhere"
	conn, err := pgx.ConnectConfig(s.t.Context(), cfg)
	require.NoError(s.t, err)
	return conn
}

// record stores an event.
func (s *setUp) record() {
	s.t.Helper()
	cfg := s.config()
	cfg.Outbox.Registry = event.NewRegistry()
	event.Register[orderPlaced](cfg.Outbox.Registry)
	err := s.db.RunInTx(s.t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := outbox.NewStore(s.db.DB, &cfg.Outbox).Add(ctx, tx, "order", orderPlaced{})
		return err
	})
	require.NoError(s.t, err)
}

// with opens a pool whose sessions have a setting.
func (s *setUp) with(name, value string) *bun.DB {
	s.t.Helper()
	db := s.db.Another(s.t)
	db.SetMaxOpenConns(1)
	_, err := db.ExecContext(s.t.Context(), "SET "+name+" = '"+value+"'")
	require.NoError(s.t, err)
	return db
}

// A relay that runs alone makes no partitions of the inbox, and nobody misses them before the first consumer.
func TestUnusedInboxNeedsNoPartitions(t *testing.T) {
	s := &setUp{t: t, db: pgtest.Migrated(t)}
	cfg := s.config()
	require.NoError(t, outbox.NewStore(s.db.DB, &cfg.Outbox).Upkeep().EnsurePartitions(t.Context()))
	partitions := func() (found []string) {
		for _, f := range doctor.Examine(t.Context(), doctor.Target{DB: s.db.DB, Config: cfg}, nil) {
			if f.Check == "partitions" {
				found = append(found, f.Mend)
			}
		}
		return found
	}
	require.Empty(t, partitions())
	s.exec("INSERT INTO inbox (message_key, consumer, tenant_id, source) VALUES ('01a21bc7-f761-7475-b813-320789683ef1', 'billing', 'default', 'shop')")
	require.Len(t, partitions(), 2)
}

// A role that is called oncebox makes its own tables in the schema of oncebox. Doctor has a finding, and the check at the start of a service warns.
func TestRoleNamedLikeTheSchema(t *testing.T) {
	s := &setUp{t: t, db: pgtest.OpenApart(t).DB}
	s.exec(`DO $$ BEGIN CREATE ROLE oncebox; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	s.exec("GRANT USAGE, CREATE ON SCHEMA public TO oncebox", "CREATE SCHEMA oncebox")
	require.NoError(t, migrations.Up(t.Context(), s.db.DB, &migrations.Config{Schema: pgsql.DefaultSchema, Logger: slog.New(slog.DiscardHandler)}))
	s.exec("GRANT USAGE, CREATE ON SCHEMA oncebox TO oncebox", "GRANT SELECT ON ALL TABLES IN SCHEMA oncebox TO oncebox")
	pool := s.with("role", "oncebox")
	var log bytes.Buffer
	cfg := s.config()
	cfg.Schema = pgsql.DefaultSchema
	look := func() (found []string) {
		log.Reset()
		_ = migrations.Verify(t.Context(), pool, &migrations.Config{Schema: cfg.Schema, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for _, f := range doctor.Examine(t.Context(), doctor.Target{DB: pool, Config: cfg}, nil) {
			if f.Check == "schema" {
				found = append(found, f.Problem+": "+f.Mend)
			}
		}
		return found
	}
	set := func(path string) {
		_, err := pool.ExecContext(t.Context(), "SET search_path = "+path)
		require.NoError(t, err)
	}
	for _, path := range []string{"public", `public, "$user"`, "oncebox"} {
		set(path)
		require.Empty(t, look(), path)
		require.NotContains(t, log.String(), "the role is called", path)
	}
	set(`"$user", public`)
	require.Equal(t, []string{pgsql.NamedAlikeProblem + ": " + pgsql.NamedAlikeMend}, look())
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), "the role is called oncebox")
}

// Each fault is found, and nothing else is. Without it nothing is found.
func TestEachFaultIsFound(t *testing.T) {
	s := newSetUp(t)
	require.Empty(t, doctor.Examine(t.Context(), s.target(), nil), "a set-up without faults")
	for name, p := range plants {
		t.Run(name, func(t *testing.T) {
			s.t = t
			target := s.target()
			limit := target.DB.Stats().MaxOpenConnections
			if p.fault != nil {
				p.fault(s)
			}
			if p.change != nil {
				p.change(s, &target)
			}
			var checks []string
			found := doctor.Examine(t.Context(), target, func(name string, n, of int) {
				checks = append(checks, name)
				require.Len(t, checks, n)
				require.LessOrEqual(t, n, of)
			})
			s.db.SetMaxOpenConns(limit)
			switch {
			case p.mend != nil:
				p.mend(s)
			case p.fault != nil: // what it says can be run
				require.NotEmpty(t, found)
				s.exec(found[0].Mend)
			}
			require.Len(t, found, 1, "%v", found)
			require.Equal(t, p.check, found[0].Check)
			require.Contains(t, found[0].Problem+": "+found[0].Mend, p.says)
			if p.check != diagnosis.Connection { // the adapter finds it within the check "broker"
				require.Contains(t, checks, p.check)
			}
			require.Empty(t, doctor.Examine(t.Context(), s.target(), nil), "the fault is gone")
		})
	}
}
