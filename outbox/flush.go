package outbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
)

// Enqueue adds to q the statement of [Store.Flush], for package uow, which sends it together with COMMIT where it can.
func (s *Store) Enqueue(ctx context.Context, tx bun.IDB, q *unit.Queue, evs []event.Envelope) error {
	h, err := s.box.Within(tx)
	if err != nil {
		return err
	}
	fresh, statement, args, xid, err := s.statement(ctx, h, evs)
	if xid != "" {
		q.XID = xid
	}
	if err != nil || len(fresh) == 0 {
		return err
	}
	text, err := s.box.Run.TextFor(ctx, tx, statement)
	if err != nil {
		return err
	}
	q.Query(func(row *pgsql.Result) error {
		var stored string
		if err := row.One(&q.XID, &stored); err != nil {
			return fmt.Errorf("outbox: insert %d events: %w", len(fresh), err)
		}
		return number(evs, fresh, stored)
	}, text, args...)
	return nil
}

// statement returns the statement that stores the events of evs, without events that repeat another one: these are fresh. xid
// is the id of the transaction, if a statement has returned it already.
func (s *Store) statement(ctx context.Context, h outboxdb.Conn, evs []event.Envelope) (fresh []event.Envelope, text string, args []any, xid string, err error) {
	l, err := s.box.Layout(ctx, h)
	if err != nil {
		return nil, "", nil, "", err
	}
	if err := setTimes(ctx, h, evs); err != nil {
		return nil, "", nil, "", err
	}
	fresh, xid, err = s.dedupe(ctx, h, evs)
	if err != nil || len(fresh) == 0 {
		return nil, "", nil, xid, err
	}
	text, args, err = outboxdb.Insertion(l, fresh, s.known.have(fresh))
	return fresh, text, args, xid, err
}

// Flush stores evs through tx, a bun.Tx, and fills in their Sequence. It is the Sink of package uow. An
// event whose [event.Delivery.DedupKey] was used before is not stored: it gets the ID of the earlier event,
// and its Sequence stays 0.
func (s *Store) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	h, err := s.box.Within(tx)
	if err != nil {
		return err
	}
	_, err = s.flush(ctx, h, evs)
	return err
}

// flush returns the id of the transaction.
func (s *Store) flush(ctx context.Context, h outboxdb.Conn, evs []event.Envelope) (xid string, err error) {
	if len(evs) == 0 {
		return "", nil
	}
	fresh, statement, args, xid, err := s.statement(ctx, h, evs)
	if err != nil || len(fresh) == 0 {
		return xid, err
	}
	var stored string
	if err := h.QueryRow(ctx, statement, args, &xid, &stored); err != nil {
		return "", outboxdb.Wrap(fmt.Sprintf("insert %d events", len(fresh)), err)
	}
	return xid, number(evs, fresh, stored)
}

// number fills in the sequences of the fresh events among evs. stored is "id seq id seq ...", in any order, or the "seq" of a single event.
func number(evs, fresh []event.Envelope, stored string) error {
	for next := 0; stored != ""; next++ {
		id, number, rest := fresh[0].ID, stored, ""
		if len(fresh) > 1 {
			id, rest, _ = strings.Cut(stored, " ")
			number, rest, _ = strings.Cut(rest, " ")
		}
		at := next // the order is nearly always the same
		if at >= len(evs) || evs[at].ID != id {
			at = slices.IndexFunc(evs, func(e event.Envelope) bool { return e.ID == id })
		}
		seq, err := strconv.ParseInt(number, 10, 64)
		if at < 0 || err != nil {
			return fmt.Errorf("outbox: insert %d events: the server answered %q", len(evs), stored)
		}
		evs[at].Sequence, stored = seq, rest
	}
	return nil
}
