package adopt

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/backoff"
)

// forwardTrigger is the name of the trigger.
const forwardTrigger = "oncebox_forward"

// forwardTries is how often Forward asks for the lock of the table. While it waits, all writers of the table wait behind it, so it waits briefly.
const forwardTries = 10

const (
	boundForward = `SET LOCAL lock_timeout = '1s'`

	hasTrigger = `SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = $1::regclass AND tgname = $2 AND NOT tgisinternal)`
)

// Forward moves the rest of the table and, in the same transaction, makes a trigger that forwards each new row when the transaction of its writer commits.
// From then on events of old code, which writes the table, and of new code, which writes the outbox, are published in the order of their commits. The
// table stays empty, and old code may run as long as it likes.
//
// The trigger does what a [Mover] does: it adds the event in the writer's transaction and marks or deletes the row. Like each writer of an outbox it locks
// the ordering key, from the COMMIT on. A row that no event can be made of stays for the mover to report, and does not hold up later ones.
//
// It is refused while rows are left that cannot be moved. The role needs the right to make functions in the schema of oncebox, to call oncebox_add, and to
// make triggers at the table; the trigger acts with its rights. The table needs a primary key. Calling it again replaces the function, for
// a mapping that has changed.
func (m *Mover) Forward(ctx context.Context) error {
	if len(m.plan.table.key) == 0 {
		return fmt.Errorf("adopt: forward %s: the table has no primary key, by which the trigger finds its row: make one", m.plan.table.label())
	}
	for try := 1; ; try++ {
		left, err := m.Once(ctx) // most of it, while others write
		if err == nil && left.Left > 0 && len(left.Problems) > 0 {
			return fmt.Errorf("adopt: forward %s: %d rows are left that cannot be moved, such as row %q: %s. Correct or delete them first, "+
				"because later rows of their keys would pass them", m.plan.table.label(), left.Left, left.Problems[0].Row, left.Problems[0].Reason)
		}
		if err == nil {
			err = m.inForward(ctx, m.beginForward)
		}
		if err == nil || try == forwardTries || !isPassing(err) {
			return wrap("forward "+m.plan.table.label(), err)
		}
		m.store.Telemetry().Logger.WarnContext(ctx, "oncebox: forwarding waits for transactions that have written to the table",
			"table", m.plan.table.label(), "error", err)
		if err := backoff.Wait(ctx, m.cfg.Interval); err != nil {
			return err
		}
	}
}

// StopForwarding removes the trigger of [Mover.Forward]. Rows that are written afterwards stay in the table until they are moved.
func (m *Mover) StopForwarding(ctx context.Context) error {
	err := m.inForward(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.Tx.ExecContext(ctx, fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s; DROP FUNCTION IF EXISTS %s()",
			forwardTrigger, m.plan.table.sql(), m.plan.forwardFunction()))
		return err
	})
	return wrap("stop forwarding "+m.plan.table.label(), err)
}

// IsForwarding reports whether the table has the trigger.
func (m *Mover) IsForwarding(ctx context.Context) (is bool, err error) {
	err = m.store.Handle().DB.DB.QueryRowContext(ctx, hasTrigger, pgx.QueryExecModeExec, m.plan.table.sql(), forwardTrigger).Scan(&is)
	return is, wrap("look for the trigger of "+m.plan.table.label(), err)
}

func (m *Mover) inForward(ctx context.Context, fn func(context.Context, bun.Tx) error) error {
	return m.store.Handle().DB.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.Tx.ExecContext(ctx, boundForward); err != nil {
			return err
		}
		if _, err := tx.Tx.ExecContext(ctx, takeTurn, pgx.QueryExecModeExec, m.plan.table.label()); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// errNotDrained means that more rows came than can be moved while writers wait.
var errNotDrained = errors.New("rows come faster than they are moved: let oncebox adopt run first, until it has caught up")

// beginForward locks writers out, moves what they have committed, and makes the trigger. Writers whose transactions have written to the table hold a lock
// until they end, so none of their rows is missed.
func (m *Mover) beginForward(ctx context.Context, tx bun.Tx) error {
	if _, err := tx.Tx.ExecContext(ctx, "LOCK TABLE "+m.plan.table.sql()+" IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return err
	}
	const most = 2000 // moved in about a tenth of a second
	evs, problems, read, err := m.move(ctx, tx, most)
	switch {
	case err != nil:
		return err
	case len(problems) > 0:
		return fmt.Errorf("row %q cannot be moved: %s", problems[0].Row, problems[0].Reason)
	case read == most:
		return errNotDrained
	}
	// A name that the trigger does not find would fail each writer.
	if _, err := tx.Tx.ExecContext(ctx, "SET LOCAL search_path = pg_catalog, pg_temp; EXPLAIN "+m.plan.count()); err != nil {
		return fmt.Errorf("the trigger runs with the search_path pg_catalog, so where has to name tables and functions with their schemas: %w", err)
	}
	if _, err := tx.Tx.ExecContext(ctx, m.plan.forward(m.store.Source(), m.store.Handle().DefaultTenant, m.store.Handle().MaxPayload)); err != nil {
		return err
	}
	var there bool
	if err := tx.Tx.QueryRowContext(ctx, hasTrigger, pgx.QueryExecModeExec, m.plan.table.sql(), forwardTrigger).Scan(&there); err != nil {
		return err
	}
	if !there {
		// Deferred: the locks of ordering keys are held during COMMIT only, as those of a unit of work are.
		trigger := "CREATE CONSTRAINT TRIGGER " + forwardTrigger + " AFTER INSERT ON " + m.plan.table.sql() + //nolint:gosec // quoted names
			" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION " + m.plan.forwardFunction() + "()"
		if _, err := tx.Tx.ExecContext(ctx, trigger); err != nil {
			return err
		}
	}
	m.moved += int64(len(evs))
	return nil
}

// forwardFunction is the name of the function of the trigger, one for each table.
func (p *plan) forwardFunction() string {
	hash := sha256.Sum256([]byte(p.table.label()))
	return p.box + "." + forwardTrigger + "_" + hex.EncodeToString(hash[:8])
}

// forward makes the function of the trigger. It acts with the rights of the role that makes it, because writers of the old table may do nothing else.
// Therefore it qualifies all names (see oncebox_create).
func (p *plan) forward(source, tenant string, maxPayload int) string {
	e := &p.expr
	payload := e.payload
	if p.mapping.Base64 {
		payload = "decode(convert_from(" + payload + ", 'UTF8'), 'base64')"
	}
	// As row.metadataOf.
	metadata := []string{fmt.Sprintf(`coalesce((
			SELECT jsonb_object_agg(m.key, CASE json_typeof(m.value) WHEN 'string' THEN m.value #>> '{}' ELSE m.value::text END)
			FROM json_each(nullif(convert_from(%s, 'UTF8'), '')::json) m WHERE json_typeof(m.value) <> 'null'), '{}')`, e.metadata)}
	for i, name := range p.headers {
		metadata = append(metadata, fmt.Sprintf("jsonb_strip_nulls(jsonb_build_object(%s, %s))", literal(name), e.headers[i]))
	}
	var key []string
	for _, column := range p.table.key {
		key = append(key, fmt.Sprintf("r.%[1]s = NEW.%[1]s", ident(column)))
	}
	own := strings.Join(key, " AND ")
	take := "DELETE FROM " + p.table.sql() + " r WHERE " + own
	if !p.mapping.Delete {
		take = "UPDATE " + p.table.sql() + " r SET " + p.mark + " WHERE " + own
	}
	body := fmt.Sprintf(`
BEGIN
	-- A row that is refused stays in the table. Other errors, such as a deadlock, are the writer's.
	PERFORM %s.oncebox_add(topic => %s, payload => NULL, event_type => %s, aggregate_type => %s, aggregate_id => %s,
		tenant_id => coalesce(nullif(%s, ''), %s), metadata => %s, aggregate_version => (%s)::bigint, ordering_key => %s,
		source => coalesce(nullif(%s, ''), %s), occurred_at => %s, id => x.id, max_payload => %d, payload_bytes => %s, content_type => %s)
	FROM %s r CROSS JOIN LATERAL (SELECT (%s) AS id OFFSET 0) x WHERE %s AND %s AND x.id IS NOT NULL;
	IF FOUND THEN
		%s;
	END IF;
	RETURN NULL;
EXCEPTION WHEN data_exception THEN
	RETURN NULL;
END `, p.box, e.topic, e.typ, e.kind, e.aggregate, e.tenant, literal(orDefault(tenant)), strings.Join(metadata, " || "), e.version, e.key,
		e.source, literal(source), e.at, maxPayload, payload, literal(p.contentType), p.table.sql(), e.id, own, p.unsent, take)
	return fmt.Sprintf("CREATE OR REPLACE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %[2]s;"+
		"REVOKE ALL ON FUNCTION %[1]s() FROM PUBLIC", p.forwardFunction(), literal(body))
}

func orDefault(tenant string) string {
	if tenant == "" {
		return "default"
	}
	return tenant
}
