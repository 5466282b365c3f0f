package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pgxSession is the transaction by hand on pgx, which prepares its three texts once per connection.
type pgxSession struct {
	pool    *pgxpool.Pool
	inserts sync.Map // statements by number of rows
}

func openPgx(ctx context.Context, s *schema, clients int) (session, error) {
	pool, err := s.pgx(ctx, clients)
	return &pgxSession{pool: pool}, err
}

func (p *pgxSession) transact(ctx context.Context, id string, balance, version int64, k int) error {
	rows, err := floorRows(id, version, k)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		const update = `UPDATE account SET balance = $1, version = version + $2 WHERE id = $3 AND version = $4 RETURNING version`
		var now int64
		if err := tx.QueryRow(ctx, update, balance+1, k, id, version).Scan(&now); err != nil {
			return fmt.Errorf("account %s at version %d: %w", id, version, err)
		}
		args := make([]any, 0, k*floorColumns)
		for _, r := range rows {
			args = append(args, r.ID, r.OccurredAt, r.AggregateVersion, r.SchemaVersion, r.Lane, r.TenantID, r.Topic, r.OrderingKey,
				r.AggregateType, r.AggregateID, r.EventType, r.Source, r.RoutingKey, r.ContentType, r.EventMetadata, r.Payload)
		}
		_, err := tx.Exec(ctx, p.insert(k), args...)
		return err
	})
}

func (p *pgxSession) close() { p.pool.Close() }

const floorColumns = 16

// insert returns the text that inserts k rows.
func (p *pgxSession) insert(k int) string {
	if text, ok := p.inserts.Load(k); ok {
		return text.(string) //nolint:forcetypeassert // only strings are stored
	}
	text := insertFloor(k)
	p.inserts.Store(k, text)
	return text
}

func insertFloor(k int) string {
	var b strings.Builder
	b.WriteString(`INSERT INTO floor (id, occurred_at, aggregate_version, schema_version, lane, tenant_id, topic, ordering_key,
	aggregate_type, aggregate_id, event_type, source, routing_key, content_type, event_metadata, payload) VALUES `)
	for row := range k {
		for col := range floorColumns {
			sep := ", "
			switch {
			case col == 0 && row == 0:
				sep = "("
			case col == 0:
				sep = "), ("
			}
			fmt.Fprintf(&b, "%s$%d", sep, row*floorColumns+col+1)
		}
	}
	return b.String() + ")"
}
