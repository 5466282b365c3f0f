package config

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// UseDB returns the database for the constructors of all packages, on a pool that the caller has opened and closes. The driver of the pool must be
// pgx (github.com/jackc/pgx/v5/stdlib). UseDB checks the same as [OpenDB]: that the database answers, for which it waits as [OpenDB] does, and that
// it keeps prepared statements unless cfg.Pooler.
//
// The pool stays as the caller has set it up. So cfg.IdleInTransaction and cfg.TCPUserTimeout have no effect on its connections, a unit of work
// needs two to four round trips more, and it is not run again after an error that its function swallowed.
// A projector and the consumers need connections of the same pool: give it 20 or more.
func UseDB(ctx context.Context, pool *sql.DB, cfg Config) (*bun.DB, error) {
	if pool == nil {
		return nil, errors.New("config: UseDB: the pool is nil: open it with sql.Open(\"pgx\", url), or call OpenDB")
	}
	return use(ctx, "UseDB", pool, cfg)
}

// UsePool is [UseDB] for a pool of pgx. The pool and the returned database share the connections: MaxConns is the limit for both together. The
// hooks of the pool are called as always. Close the returned database first, which leaves the pool open, and then the pool.
func UsePool(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*bun.DB, error) {
	if pool == nil {
		return nil, errors.New("config: UsePool: the pool is nil: open it with pgxpool.New, or call OpenDB")
	}
	db := stdlib.OpenDBFromPool(pool)
	db.SetMaxOpenConns(int(pool.Config().MaxConns)) // so that database/sql counts what waits
	used, err := use(ctx, "UsePool", db, cfg)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return used, nil
}

func use(ctx context.Context, call string, pool *sql.DB, cfg Config) (*bun.DB, error) {
	if cfg.RefusePool {
		return nil, fmt.Errorf("config: %s: Config.RefusePool (ONCEBOX_REFUSE_POOL) is for connections of OpenDB, and this pool has others: "+
			"call OpenDB, or leave it false and have the analyzer unitpool look (oncebox-vet)", call)
	}
	db := bun.NewDB(pool, pgdialect.New())
	native := false
	err := waiting(cfg).Until(ctx, func() (err error) {
		native, err = answers(ctx, db)
		if err != nil || !native || cfg.Pooler {
			return called(call, err)
		}
		return called(call, pgsql.CheckSession(ctx, db))
	})
	if err != nil {
		return nil, err
	}
	if !native {
		return nil, fmt.Errorf("config: %s: the driver is %T, which is not pgx: open the pool with sql.Open(\"pgx\", url)", call, pool.Driver())
	}
	return db, nil
}

// answers asks the database for an answer, and reports whether the driver is pgx.
func answers(ctx context.Context, db *bun.DB) (native bool, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	native, err = pgsql.NativeConn(conn, func(*pgx.Conn) error { return nil })
	return native, errors.Join(err, conn.PingContext(ctx), conn.Close())
}
