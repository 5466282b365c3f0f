package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// serverChecks need no tables of oncebox, so they also help before the first migration.
func serverChecks() []check {
	return []check{
		{"version", (*examination).version},
		{"writable", (*examination).writable},
		{"durability", (*examination).durability},
		{"autovacuum", (*examination).autovacuum},
		{"timeouts", (*examination).timeouts},
		{"connections", (*examination).connections},
		{"clock", (*examination).clock},
		{"snapshots", (*examination).snapshots},
		{"pooler", (*examination).pooler},
	}
}

const (
	setting    = `SELECT current_setting($1)`
	inRecovery = `SELECT pg_is_in_recovery()`
	now        = `SELECT clock_timestamp()`

	// oldest lists what keeps dead rows alive: transactions, prepared transactions, and replication slots. Stats.SnapshotAge of
	// outbox/state counts the same ones. A transaction that has written keeps the relay of every database from skipping published events; a
	// transaction that only reads keeps VACUUM from removing rows in its own database.
	oldest = `
SELECT 'a transaction of ' || coalesce(nullif(application_name, ''), 'process') || ' (' || coalesce(usename, '?') || ', ' || coalesce(state, '?') ||
	', database ' || coalesce(datname, '?') || ')',
	date_trunc('second', clock_timestamp() - xact_start)::text, 'SELECT pg_terminate_backend(' || pid || ')'
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND xact_start < clock_timestamp() - make_interval(secs => $1) AND backend_type = 'client backend'
	AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL AND datname = current_database())
UNION ALL
SELECT 'the prepared transaction ' || gid || ' (database ' || database || ')', date_trunc('second', clock_timestamp() - prepared)::text,
	'ROLLBACK PREPARED ' || quote_literal(gid)
FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - make_interval(secs => $1)
UNION ALL
SELECT 'the replication slot ' || slot_name, age(coalesce(xmin, catalog_xmin)) || ' transactions',
	'SELECT pg_drop_replication_slot(' || quote_literal(slot_name) || ')'
FROM pg_replication_slots WHERE NOT active AND (xmin IS NOT NULL OR database = current_database())
ORDER BY 1, 2`
)

const (
	// clockSkew is the tolerated difference of the clocks, in addition to the time that the query takes.
	clockSkew = 2 * time.Second
	// shortTimeout is the statement_timeout below which long statements may fail on a busy day, for example statements that clean tables.
	shortTimeout = 30 * time.Second
	// oldestVersion is the oldest supported PostgreSQL, in the form of server_version_num.
	oldestVersion = 140000
)

// setting returns the value that holds for this role and database. It may differ from the one in postgresql.conf.
func (e *examination) setting(ctx context.Context, name string) (value string, err error) {
	if err := e.scan(ctx, setting, []any{name}, &value); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return value, nil
}

// version finds a server that is too old. Without it, statements would fail later with a syntax error.
func (e *examination) version(ctx context.Context) ([]Finding, error) {
	text, err := e.setting(ctx, "server_version_num")
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(text)
	if err != nil || number >= oldestVersion {
		return nil, err
	}
	return []Finding{finding("version", Problem, "upgrade the server", "the server is PostgreSQL %d, and oncebox needs 14 or newer", number/10000)}, nil
}

// writable finds a standby, and a role or database whose transactions only read: units of work would fail
// at their first write.
func (e *examination) writable(ctx context.Context) ([]Finding, error) {
	var standby bool
	if err := e.scan(ctx, inRecovery, nil, &standby); err != nil {
		return nil, err
	}
	if standby {
		return []Finding{finding("writable", Problem, "correct the host of ONCEBOX_DATABASE_URL, or add target_session_attrs=read-write",
			"the server is a standby, which takes no writes")}, nil
	}
	if value, err := e.setting(ctx, "default_transaction_read_only"); err != nil || value != "on" {
		return nil, err
	}
	return []Finding{finding("writable", Problem, "ALTER ROLE or ALTER DATABASE ... RESET default_transaction_read_only",
		"transactions are read-only by default (default_transaction_read_only)")}, nil
}

// durability finds settings that can lose commits in a crash. A lost commit whose events were published cannot be
// repaired: other services have acted on it.
func (e *examination) durability(ctx context.Context) (found []Finding, err error) {
	for _, s := range []struct{ name, loses, mend string }{
		{"fsync", "a crash of the machine may destroy the database", "set fsync = on in postgresql.conf"},
		{"full_page_writes", "a crash of the machine may destroy pages", "set full_page_writes = on in postgresql.conf"},
		{"synchronous_commit", "a crash of the server loses the last commits, also commits whose events were published",
			"ALTER ROLE, ALTER DATABASE or postgresql.conf: set synchronous_commit = on"},
	} {
		value, err := e.setting(ctx, s.name)
		if err != nil {
			return found, err
		}
		if value == "off" {
			found = append(found, finding("durability", Problem, s.mend, "%s is off: %s", s.name, s.loses))
		}
	}
	return found, nil
}

// autovacuum finds a server that does not reclaim deleted rows by itself. A busy outbox deletes as many
// rows as it gets.
func (e *examination) autovacuum(ctx context.Context) ([]Finding, error) {
	value, err := e.setting(ctx, "autovacuum")
	if err != nil || value != "off" {
		return nil, err
	}
	return []Finding{finding("autovacuum", Problem, "set autovacuum = on in postgresql.conf",
		"autovacuum is off: rows of the outbox are inserted and deleted all the time, so its tables grow and become slower and slower")}, nil
}

// timeouts finds limits that suit the requests of a service, but not the cleaning of tables or a session
// that waits for notifications.
func (e *examination) timeouts(ctx context.Context) (found []Finding, err error) {
	for _, name := range []string{"statement_timeout", "idle_session_timeout"} {
		var ms int64
		// pg_settings has both in milliseconds; current_setting would return a text with a unit.
		if err := e.scan(ctx, `SELECT setting::bigint FROM pg_settings WHERE name = $1`, []any{name}, &ms); err != nil {
			return found, fmt.Errorf("read %s: %w", name, err)
		}
		if limit := time.Duration(ms) * time.Millisecond; limit > 0 && limit < shortTimeout {
			found = append(found, finding("timeouts", Warning, "raise "+name+" to "+shortTimeout.String()+" or more for this role, or set it to 0",
				"%s is %s: the server ends statements that delete old rows, or idle connections on which oncebox waits for notifications", name, limit))
		}
	}
	return found, nil
}

// connections finds a pool that is larger than the server allows. The server would refuse connections only under load.
func (e *examination) connections(ctx context.Context) ([]Finding, error) {
	var server int
	// The connections that are reserved for superusers are of no use to the role of a service.
	if err := e.scan(ctx, `SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int`, nil, &server); err != nil {
		return nil, err
	}
	if pool := e.DB.Stats().MaxOpenConnections; pool > server {
		return []Finding{finding("connections", Warning, "raise max_connections, or give the processes smaller pools (SetMaxOpenConns)",
			"one process may open %d connections, and the server takes %d in all", pool, server)}, nil
	}
	return nil, nil
}

// clock compares the clock of this machine with that of the server. The query takes some time, so the server's answer
// is compared with the moments before and after it.
func (e *examination) clock(ctx context.Context) ([]Finding, error) {
	var theirs time.Time
	before := e.Now()
	if err := e.scan(ctx, now, nil, &theirs); err != nil {
		return nil, err
	}
	after := e.Now()
	skew := max(before.Sub(theirs), theirs.Sub(after)) // negative if the server's time lies between the two
	if skew <= clockSkew {
		return nil, nil
	}
	return []Finding{finding("clock", Warning, "run NTP on both machines",
		"the clock of the database server and the clock of this machine differ by %s: delays and leases use the server's clock, times in logs and traces "+
			"use this machine's",
		skew.Round(time.Millisecond))}, nil
}

// snapshots finds old transactions, whose snapshots keep deleted rows alive.
func (e *examination) snapshots(ctx context.Context) ([]Finding, error) {
	rows, err := e.list(ctx, oldest, 3, e.LongTransaction.Seconds())
	var found []Finding
	for _, row := range rows {
		found = append(found, finding("snapshots", Warning, "end it: "+row[2],
			"%s is %s old: VACUUM cannot remove rows that were deleted since then, so the outbox becomes slower", row[0], row[1]))
	}
	return found, err
}

// pooler finds a pooler that the setting does not mention. Prepared statements would fail through it, but
// only now and then.
func (e *examination) pooler(ctx context.Context) ([]Finding, error) {
	err := pgsql.CheckSession(ctx, e.DB)
	if !errors.Is(err, pgerr.ErrPooler) || e.Config.Pooler {
		return nil, ignore(err, pgerr.ErrPooler)
	}
	return []Finding{finding("pooler", Problem, "set ONCEBOX_POOLER=true", "%v", err)}, nil
}

// ignore returns err, or nil if err wraps kind.
func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}
