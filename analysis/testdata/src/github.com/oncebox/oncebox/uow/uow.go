// Package uow stands for the real one.
package uow

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
)

type Manager struct{}

func (*Manager) Do(ctx context.Context, fn func(context.Context, *Unit) error) error { return nil }

type Unit struct{}

func (*Unit) DB() bun.IDB                                       { return nil }
func (*Unit) SQL() *sql.Tx                                      { return nil }
func (*Unit) Track(aggregates ...any)                           {}
func (*Unit) Save(ctx context.Context, aggregates ...any) error { return nil }
