package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
)

// bunSession is the transaction written by hand with bun models. bun writes arguments into the text of its statements,
// so nothing can be prepared, and the simple protocol sends them fastest.
type bunSession struct {
	db *bun.DB
}

func openBun(_ context.Context, s *schema, clients int) (session, error) {
	db, err := s.bun(pgx.QueryExecModeSimpleProtocol, clients)
	return bunSession{db}, err
}

func (b bunSession) transact(ctx context.Context, id string, balance, version int64, k int) error {
	rows, err := floorRows(id, version, k)
	if err != nil {
		return err
	}
	return b.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		a := &account{ID: id, Balance: balance + 1, Version: version}
		res, err := tx.NewUpdate().Model(a).Set("balance = ?", a.Balance).Set("version = version + ?", k).
			WherePK().Where("version = ?", version).Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); n != 1 {
			return fmt.Errorf("account %s: not at version %d: %w", id, version, err)
		}
		_, err = tx.NewInsert().Model(&rows).Exec(ctx)
		return err
	})
}

func (b bunSession) close() { _ = b.db.Close() }
