package adopt

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// haul is what one transaction moves.
type haul struct {
	read     int // how many rows were there
	evs      []event.Envelope
	problems []Problem // rows that stay
	dead     []Problem // rows that become dead letters

	places, ctids []string // of the rows that are marked or deleted
	refused       []row    // those of dead
}

// move adds the events of at most limit rows to the outbox, and marks or deletes the rows.
//
// While rows are forwarded, a row that no event can be made of becomes a dead letter, as it does in the trigger: later rows of its key do not come here,
// so nothing else would hold them up. Rows of its key that are read with it come with the next batch: they are behind it in the outbox, too.
func (m *Mover) move(ctx context.Context, tx bun.Tx, limit int) (h haul, err error) {
	var forwarding bool
	err = tx.Tx.QueryRowContext(ctx, hasTrigger, pgx.QueryExecModeExec, m.plan.table.sql(), forwardTrigger).Scan(&forwarding)
	if err != nil {
		return h, err
	}
	blocked := map[string]bool{}
	rows := pgsql.QueryPlain(ctx, tx.Tx, m.plan.read(), pgx.QueryExecModeExec, m.stay.places(), m.stay.keys(), limit)
	err = pgsql.Each(rows, func(scan pgsql.Scan) error {
		var r row
		if err := r.scan(m.plan, scan); err != nil {
			return err
		}
		h.read++
		if blocked[r.block.String] { // behind a row that stays
			return nil
		}
		env, err := r.envelope(ctx, m.plan, m.store)
		if err == nil {
			h.evs = append(h.evs, env)
			h.take(&r)
			return nil
		}
		problem := Problem{Row: r.label.String, At: r.at, Reason: err.Error(), place: r.place(), key: r.block.String}
		if forwarding {
			h.dead, h.refused = append(h.dead, problem), append(h.refused, r)
			h.take(&r)
		} else {
			h.problems = append(h.problems, problem)
		}
		if r.block.Valid {
			blocked[r.block.String] = true
		}
		return nil
	})
	if err != nil || len(h.places) == 0 {
		return h, err
	}
	if err := m.store.Flush(ctx, tx, h.evs); err != nil {
		return h, err
	}
	for i := range h.refused {
		if err := m.refuse(ctx, tx, &h.refused[i], h.dead[i].Reason); err != nil {
			return h, err
		}
	}
	return h, m.take(ctx, tx, &h)
}

func (h *haul) take(r *row) {
	h.places, h.ctids = append(h.places, r.part+r.at), append(h.ctids, r.at)
}

// take marks or deletes the rows of the haul.
func (m *Mover) take(ctx context.Context, tx bun.Tx, h *haul) error {
	taken, err := pgsql.Collect(pgsql.QueryPlain(ctx, tx.Tx, m.plan.take(), pgx.QueryExecModeExec, h.ctids, h.places),
		func(scan pgsql.Scan, unsent *bool) error { return scan(unsent) })
	if err != nil {
		return err
	}
	for _, unsent := range taken {
		if unsent {
			return errStillUnsent
		}
	}
	if len(taken) != len(h.places) {
		return fmt.Errorf("%d rows were read and %d were marked: "+
			"a trigger of the table, or a policy of row security, keeps rows from being changed", len(h.places), len(taken))
	}
	return nil
}

const addRefused = `SELECT %s.oncebox_add(topic => $1, payload => NULL, event_type => $2, aggregate_type => $3, aggregate_id => $4,
	tenant_id => coalesce(nullif($5, ''), $6), ordering_key => $7, source => coalesce(nullif($8, ''), $9), occurred_at => $10, content_type => $11,
	id => $12, payload_bytes => $13, metadata => $14::text::jsonb, refused => $15)`

// refuse stores a row that no event can be made of, for the relay to give it up.
func (m *Mover) refuse(ctx context.Context, tx bun.Tx, r *row, reason string) error {
	metadata, err := r.metadataOf(m.plan)
	if err != nil {
		metadata = event.Metadata{"oncebox.metadata": string(r.metadata)}
		r.addHeaders(m.plan, metadata)
	}
	entries, err := json.Marshal(metadata)
	if err != nil {
		return err
	}
	_, err = tx.Tx.ExecContext(ctx, fmt.Sprintf(addRefused, m.plan.box), pgx.QueryExecModeExec, r.topic, r.typ, r.kind, r.aggregate,
		r.tenant, orDefault(m.store.Handle().DefaultTenantID),
		r.key, r.source, m.store.Source(), r.occurred, m.plan.contentType, r.id, r.payload, string(entries), reason)
	return err
}
