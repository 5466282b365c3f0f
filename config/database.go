package config

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/arrival"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	idleParam         = "idle_in_transaction_session_timeout"
	idleInTransaction = 5 * time.Minute
)

// redacted removes the password from the text of a database URL that cannot be parsed. pgx does so too, as far as it understands the text.
func redacted(text string) string {
	text = regexp.MustCompile(`(?s)(//[^/:@]*):.*@`).ReplaceAllString(text, "$1:xxxxx@")
	return regexp.MustCompile(`(password\s*=\s*)('[^']*'|[^\s&]+)`).ReplaceAllString(text, "${1}xxxxx")
}

// checkParams refuses the parameters of pgxpool, which PostgreSQL would get as settings of the session.
func checkParams(params map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if strings.HasPrefix(name, "pool_") {
			errs = append(errs, fmt.Errorf("config: OpenDB: ONCEBOX_DATABASE_URL has %s, which only pgxpool reads: remove it and call "+
				"SetMaxOpenConns and the like on what OpenDB returns, or open the pool with pgxpool.New and call UsePool", name))
		}
	}
	return errors.Join(errs...)
}

// OpenDB opens the database and checks that it answers, and that it keeps prepared statements unless cfg.Pooler. It waits for a database that is
// away, see Config.DatabaseWait.
//
// The driver is pgx, because it cancels statements on the server and returns an error when the server answers COMMIT with a rollback. bun writes
// arguments into the text of its statements, so that each is new to the server. Preparing them would only cost time, so they are sent in "exec"
// mode unless the URL sets another one. Units of work send what they can in one round trip, and prepare their own statements, unless cfg.Pooler.
//
// The pool has up to 20 connections, or four for each core if that is more: call SetMaxOpenConns and SetMaxIdleConns of the returned database to
// change that. The parameters of pgxpool (pool_max_conns and others) are refused: they are for [UsePool].
func OpenDB(ctx context.Context, cfg Config) (*bun.DB, error) {
	if cfg.DatabaseURL == "" {
		return nil, errors.New("config: OpenDB: no database: set ONCEBOX_DATABASE_URL (or DATABASE_URL), " +
			"for example postgres://user:password@localhost:5432/app")
	}
	pc, err := pgx.ParseConfig(cfg.DatabaseURL)
	if err != nil {
		return nil, errors.New("config: OpenDB: ONCEBOX_DATABASE_URL: " + redacted(err.Error()) +
			": give for example postgres://user:password@localhost:5432/app")
	}
	if err := checkParams(pc.RuntimeParams); err != nil {
		return nil, err
	}
	if pc.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		pc.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if idle := cfg.WithDefaults().IdleInTransaction; idle > 0 && !cfg.Pooler {
		if _, set := pc.RuntimeParams[idleParam]; !set && !strings.Contains(pc.RuntimeParams["options"], idleParam) {
			pc.RuntimeParams[idleParam] = strconv.FormatInt(max(idle.Milliseconds(), 1), 10)
		}
	}
	if timeout := cfg.WithDefaults().TCPUserTimeout; timeout > 0 {
		pc.DialFunc = dial(timeout, pc.ConnectTimeout)
		pc.ConnectTimeout = cmp.Or(pc.ConnectTimeout, timeout)
	}
	var opts []pgsql.ConnectorOption
	if cfg.Pooler {
		opts = append(opts, pgsql.BehindPooler())
	}
	pool := open(pgsql.NewConnector(*pc, opts...), cfg.RefusePool)
	pool.SetMaxOpenConns(max(20, 4*runtime.GOMAXPROCS(0)))
	pool.SetMaxIdleConns(max(20, 4*runtime.GOMAXPROCS(0)))
	pool.SetConnMaxIdleTime(5 * time.Minute)
	db := bun.NewDB(pool, pgdialect.New())
	err = waiting(cfg).Until(ctx, func() error {
		if err := db.PingContext(ctx); err != nil {
			return refused(pc, err)
		}
		if cfg.Pooler {
			return nil
		}
		return called("OpenDB", pgsql.CheckSession(ctx, db))
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func open(connector *pgsql.Connector, refuse bool) *sql.DB {
	if refuse {
		return pgsql.OpenGuarded(connector)
	}
	return sql.OpenDB(connector)
}

func waiting(cfg Config) arrival.Wait {
	return arrival.Wait{Limit: cfg.DatabaseWait, Log: otelx.Logger(cfg.Telemetry.Logger)}
}

// called names the call that failed.
func called(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("config: %s: %w", call, err)
}
