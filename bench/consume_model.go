package main

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
)

const handModelSettings = "bun, with the statements sent by pgx in mode exec: encoding/json, RunInTx, INSERT ON CONFLICT, UPDATE of a model, Ack; 8 workers"

// handModel is handSingle as a service writes it that has bun and decodes its events.
func handModel(ctx context.Context, c *consumption) error {
	db, err := c.schema.bun(pgx.QueryExecModeExec, consumeWorkers)
	if err != nil {
		return err
	}
	defer db.Close()
	return c.byHand(ctx, consumeWorkers, oneByOne(func(ctx context.Context, m handMessage) error { return updateByModel(ctx, db, m, c.ledger) }))
}

func updateByModel(ctx context.Context, db *bun.DB, m handMessage, l *ledger) error {
	var e moneyMoved
	if err := json.Unmarshal(m.from.Payload(), &e); err != nil {
		return err
	}
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		// The id as text, because bun writes an array of bytes as an array.
		entered, err := tx.NewRaw("INSERT INTO hand_inbox (message_id, consumer) VALUES (?, ?) ON CONFLICT DO NOTHING",
			m.from.Properties()["ce_id"], source).Exec(ctx)
		if err != nil {
			return err
		}
		if fresh, err := isFresh(entered); err != nil || !fresh {
			return err
		}
		l.handle(m.account, m.version)
		_, err = tx.NewUpdate().Model((*account)(nil)).Set("balance = balance + ?", e.Amount).Where("id = ?", m.account).Exec(ctx)
		return err
	})
}

func isFresh(entered sql.Result) (bool, error) {
	n, err := entered.RowsAffected()
	return n > 0, err
}
