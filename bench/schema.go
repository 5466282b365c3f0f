package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/migrations"
)

// schema is a PostgreSQL schema for one run, with oncebox's tables in it.
type schema struct {
	dsn, name string
	tracer    pgx.QueryTracer // of pools of bun; nil: none
}

// withSchema makes a schema, runs fn and drops the schema.
func withSchema(ctx context.Context, dsn string, fn func(*schema) error) error {
	s := &schema{dsn: dsn, name: "bench_" + strings.ToLower(rand.Text()[:16])}
	db, err := s.bun(pgx.QueryExecModeExec, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	defer s.drop(ctx, db)
	err = migrations.Up(ctx, db, &migrations.Config{Schema: s.name, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return fn(s)
}

// drop removes the schema, also when the program is interrupted: the server may belong to somebody else.
func (s *schema) drop(ctx context.Context, db *bun.DB) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if _, err := db.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+s.name+" CASCADE"); err != nil {
		progressf("the schema %s stays: %v", s.name, err)
	}
}

// bun opens a database/sql pool on the schema: in exec mode as config.OpenDB does, else with pgx/stdlib as it is. mode is
// how statements are sent that do not say it themselves.
func (s *schema) bun(mode pgx.QueryExecMode, conns int) (*bun.DB, error) {
	cfg, err := pgx.ParseConfig(s.dsn)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	cfg.DefaultQueryExecMode = mode
	cfg.RuntimeParams["search_path"] = s.name
	cfg.Tracer = s.tracer
	connector := stdlib.GetConnector(*cfg)
	if mode == pgx.QueryExecModeExec {
		cfg.RuntimeParams["idle_in_transaction_session_timeout"] = "5min" // as config.OpenDB does
		connector = pgsql.NewConnector(*cfg)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	return bun.NewDB(pool, pgdialect.New()), nil
}

// pgx opens a pool of pgx's own, which prepares each statement once per connection.
func (s *schema) pgx(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(s.dsn)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	cfg.ConnConfig.RuntimeParams["search_path"] = s.name
	cfg.MaxConns = int32(conns) //nolint:gosec // a flag
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return pool, nil
}

// exec runs scripts.
func (s *schema) exec(ctx context.Context, scripts ...string) error {
	db, err := s.bun(pgx.QueryExecModeSimpleProtocol, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, script := range scripts {
		if _, err := db.DB.ExecContext(ctx, script); err != nil {
			return fmt.Errorf("prepare the run: %w", err)
		}
	}
	return nil
}
