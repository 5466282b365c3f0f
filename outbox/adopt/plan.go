package adopt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/event"
)

// plan is a mapping in SQL, for one table: each field of an event is an expression over a row r. The mover and the trigger of [Mover.Forward] use the
// same expressions, so an event is the same whichever way its row goes.
type plan struct {
	table       *table
	mapping     *Mapping
	box         string // schema of oncebox's tables, as an identifier
	contentType string
	headers     []string // names, in the order of expr.headers

	expr struct {
		id, label                            string // the UUID, and what stands in the table, for people
		topic, typ, kind, aggregate, version string
		key, tenant, source, at              string
		payload                              string
		metadata, entries                    string // the bytes of the column, and what oncebox_headers makes of them
		headers                              []string
		block                                string // equal for two rows whose events are in one order, NULL for an unordered one
	}
	unsent, order string
	mark          []marked
}

// newPlan compiles a mapping.
func newPlan(ctx context.Context, db querier, m *Mapping, box string) (*plan, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	t, err := lookUp(ctx, db, m.Table)
	if err != nil {
		return nil, err
	}
	if t.sql() == box+"."+ident("outbox") {
		return nil, fmt.Errorf("adopt: mapping: table: %s is oncebox's own outbox: name the table that is to be taken over", t.label())
	}
	c := &compiler{table: t, box: box}
	full := *m // names its table for each search_path
	full.Table = t.mapped()
	p := &plan{table: t, mapping: &full, box: box, headers: slices.Sorted(maps.Keys(m.Headers))}
	e := &p.expr
	e.label = c.text("id", m.ID)
	e.id = uuidOf(t.label(), e.label)
	e.topic, e.typ, e.key = c.text("topic", m.Topic), c.text("type", m.Type), c.text("key", m.Key)
	e.kind, e.aggregate = c.text("aggregate_type", m.AggregateType), c.text("aggregate_id", m.AggregateID)
	e.version, e.at = c.text("aggregate_version", m.AggregateVersion), c.time(m)
	e.tenant, e.source = c.text("tenant", m.Tenant), c.text("source", m.Source)
	e.payload, e.metadata = c.bytes("payload", m.Payload), c.bytes("metadata", m.Metadata)
	e.entries = fmt.Sprintf("%s.oncebox_headers(%s)", box, e.metadata)
	for _, name := range p.headers {
		e.headers = append(e.headers, c.text("headers."+name, m.Headers[name]))
	}
	e.block = fmt.Sprintf("CASE WHEN %[1]s <> '' THEN concat(%[2]s, '|', %[1]s) WHEN %[4]s <> '' THEN concat(%[2]s, '|', %[3]s, '|', %[4]s) END",
		e.key, e.tenant, e.kind, e.aggregate)
	p.unsent, p.order, p.mark = c.unsent(m), c.order(m.Order), c.mark(m)
	p.contentType = c.contentType(m)
	if len(c.errs) > 0 {
		return nil, c.err()
	}
	return p, p.tryWhere(ctx, db)
}

// tryWhere tries the condition of the mapping by itself. Within another statement the server's error would not say where the mistake is.
func (p *plan) tryWhere(ctx context.Context, db querier) error {
	if p.mapping.Where == "" {
		return nil
	}
	var line string
	err := db.QueryRowContext(ctx, "EXPLAIN SELECT FROM "+p.table.sql()+" r WHERE ("+p.mapping.Where+"\n)").Scan(&line)
	return wrap("try the condition \"where\" of the mapping, "+p.mapping.Where, err)
}

// uuidOf is the id of an event: the text itself if it is a UUID, and else a hash of it (UUIDv8, RFC 9562, section 5.8).
func uuidOf(within, text string) string {
	hash := fmt.Sprintf("encode(sha256(convert_to(%s || %s, 'UTF8')), 'hex')", literal(within+" "), text)
	return fmt.Sprintf(`CASE WHEN %[1]s = '' THEN NULL WHEN %[1]s ~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$' THEN (%[1]s)::uuid
	ELSE overlay(overlay(left(%[2]s, 32) PLACING '8' FROM 13) PLACING '8' FROM 17)::uuid END`, text, hash)
}

// columns are the expressions of a row, in the order in which row.scan reads them.
func (p *plan) columns() string {
	e := &p.expr
	list := []string{
		"r.tableoid::text", "r.ctid::text", "r.xmin::text", e.label, "(" + e.id + ")::text", e.topic, e.typ, e.kind, e.aggregate, e.version, e.key,
		e.tenant, e.source, e.at, e.payload, e.metadata, "(" + e.entries + ")::text", e.block,
	}
	return strings.Join(append(list, e.headers...), ",\n\t")
}

// place identifies a version of a row. It changes when the row is written, so a row that was mended has another one.
const place = "r.tableoid::text || r.ctid::text || r.xmin::text"

// read reads the first $3 rows in their order, but for those at the places $1 and those of the keys $2, and locks them.
func (p *plan) read() string {
	return fmt.Sprintf(`SELECT %s
FROM %s r
WHERE %s AND (%s) <> ALL ($1::text[]) AND ((%s) IS NULL OR (%[5]s) <> ALL ($2::text[]))
ORDER BY %s
LIMIT $3 FOR UPDATE`,
		p.columns(), p.table.sql(), p.unsent, place, p.expr.block, p.order)
}

// look reads all rows in their order, and locks nothing.
func (p *plan) look() string {
	return fmt.Sprintf("SELECT %s\nFROM %s r\nWHERE %s\nORDER BY %s", p.columns(), p.table.sql(), p.unsent, p.order)
}

// count counts the rows that are left.
func (p *plan) count() string {
	return fmt.Sprintf("SELECT count(*) FROM %s r WHERE %s", p.table.sql(), p.unsent)
}

// take deletes or marks the rows whose ctid is in $1 and whose tableoid and ctid are in $2. It returns for each whether it still counts as unsent.
func (p *plan) take() string {
	where := " WHERE r.ctid = ANY ($1::text[]::tid[]) AND r.tableoid::text || r.ctid::text = ANY ($2::text[])"
	if p.mapping.Delete {
		return "DELETE FROM " + p.table.sql() + " r" + where + " RETURNING false"
	}
	set := make([]string, len(p.mark))
	for i, m := range p.mark {
		set[i] = ident(m.column) + " = " + m.value
	}
	return "UPDATE " + p.table.sql() + " r SET " + strings.Join(set, ", ") + where + " RETURNING coalesce(" + p.unsent + ", false)"
}

// isJSON reports whether the payload has to be JSON.
func (p *plan) isJSON() bool {
	mediaType, _, _ := strings.Cut(p.contentType, ";")
	mediaType = strings.TrimSpace(mediaType)
	return mediaType == event.ContentTypeJSON || strings.HasSuffix(mediaType, "+json")
}
