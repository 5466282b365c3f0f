package outbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// columns names every column of an outbox row that is copied when the row moves. Always by name: the tables grow.
const columns = `seq, id, occurred_at, created_at, not_before, expires_at, aggregate_version, schema_version, lane, max_attempts,
	retry_count, crashes, tenant_id, topic, ordering_key, aggregate_type, aggregate_id, event_type, source, routing_key,
	schema_id, content_type, dedup_key, event_metadata, payload`

// FlushBatch adds to b the statement of [Store.Flush]. It is the BatchSink of package uow.
func (s *Store) FlushBatch(ctx context.Context, tx bun.IDB, b *pgx.Batch, evs []event.Envelope) error {
	l, err := s.loadLayout(ctx, tx)
	if err != nil {
		return err
	}
	statement, args, err := s.insertion(l, evs)
	if err != nil {
		return err
	}
	b.Queue(s.sql.Text(statement), args...).QueryRow(func(row pgx.Row) error {
		var xid, stored string
		if err := row.Scan(&xid, &stored); err != nil {
			return fmt.Errorf("outbox: insert %d events: %w", len(evs), err)
		}
		return number(evs, stored)
	})
	return nil
}

// Flush stores evs through tx and fills in their Sequence. It is the Sink of package uow.
func (s *Store) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	_, err := s.FlushProbe(ctx, tx, evs)
	return err
}

// FlushProbe is [Store.Flush], and returns the id of the transaction.
func (s *Store) FlushProbe(ctx context.Context, tx bun.IDB, evs []event.Envelope) (xid string, err error) {
	if len(evs) == 0 {
		return "", nil
	}
	l, err := s.loadLayout(ctx, tx)
	if err != nil {
		return "", err
	}
	statement, args, err := s.insertion(l, evs)
	if err != nil {
		return "", err
	}
	var stored string
	if err := s.sql.QueryRow(ctx, tx, statement, args, &xid, &stored); err != nil {
		return "", fmt.Errorf("outbox: insert %d events: %w", len(evs), pgsql.Explain(err))
	}
	return xid, number(evs, stored)
}

// number fills in the sequences. stored is "id seq id seq ...", in an order that is nobody's promise.
func number(evs []event.Envelope, stored string) error {
	fields := strings.Fields(stored)
	for i := 0; i+1 < len(fields); i += 2 {
		at := slices.IndexFunc(evs, func(e event.Envelope) bool { return e.ID == fields[i] })
		seq, err := strconv.ParseInt(fields[i+1], 10, 64)
		if at < 0 || err != nil {
			return fmt.Errorf("outbox: insert %d events: the server answered %q", len(evs), stored)
		}
		evs[at].Sequence = seq
	}
	return nil
}
