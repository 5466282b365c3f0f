package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// Suggest guesses the mapping of a table by the names and types of its columns, and by the values of its status. The notes say what it did not know, or
// what has to be checked. It reads the table and writes nothing. A mapping that it returns is to be read by a person before it is used.
func Suggest(ctx context.Context, db *bun.DB, named string) (m *Mapping, notes []string, err error) {
	t, err := lookUp(ctx, db.DB, named)
	if err != nil {
		return nil, nil, err
	}
	g := &guess{table: t, m: &Mapping{Table: t.mapped()}}
	if err := g.fields(ctx, db.DB); err != nil {
		return nil, nil, err
	}
	return g.m, g.notes, nil
}

// WriteTo writes the mapping as YAML, with the notes as comments before it.
func (m *Mapping) WriteTo(to io.Writer, notes []string) error {
	var b strings.Builder
	for _, note := range notes {
		b.WriteString("# " + note + "\n")
	}
	text, err := m.text()
	if err != nil {
		return err
	}
	_, err = io.WriteString(to, b.String()+text)
	return err
}

// guess is a mapping in the making.
type guess struct {
	table *table
	m     *Mapping
	notes []string
}

// Names of columns, in the order of preference, in lower case and without underscores.
const (
	idNames        = "id uuid messageid eventid outboxid"
	topicNames     = "topic destinationtopic destination channel subject exchange"
	typeNames      = "eventtype type eventname messagetype kind"
	kindNames      = "aggregatetype entitytype resourcetype streamtype"
	aggregateNames = "aggregateid entityid resourceid streamid"
	keyNames       = "orderingkey partitionkey messagekey key routingkey"
	versionNames   = "aggregateversion entityversion"
	tenantNames    = "tenantid tenant"
	payloadNames   = "payload eventdata eventpayload data body message content args event"
	metadataNames  = "headers metadata meta attributes properties"
	occurredNames  = "occurredat occurredon createdat createdon insertedat created senttime timestamp time"
	orderNames     = "sequencenumber sequence seq position offset"
	sentAtNames    = "processedat processedon publishedat sentat senton dispatchedat deliveredat"
	flagNames      = "published processed sent dispatched delivered ispublished isprocessed issent"
	statusNames    = "status state"

	// Values of a status.
	unsentValues = "pending new created unsent unpublished queued ready available retryable scheduled running processing failed error retry"
	sentValues   = "sent published processed completed done delivered success"
)

// find returns the first column that has one of the names, and one of the types if any are given.
func (g *guess) find(names string, kinds ...string) *column {
	for name := range strings.FieldsSeq(names) {
		for i := range g.table.columns {
			c := &g.table.columns[i]
			if strings.ReplaceAll(strings.ToLower(c.name), "_", "") == name && (len(kinds) == 0 || slices.Contains(kinds, c.kind)) {
				return c
			}
		}
	}
	return nil
}

// ref is the reference to a column in a mapping, "" for none.
func ref(c *column) string {
	if c == nil {
		return ""
	}
	return "{" + quotedName(c.name) + "}"
}

// quotedName is a name as a mapping writes it.
func quotedName(name string) string {
	if strings.ContainsAny(name, `."{}`) {
		return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return name
}

func (g *guess) notef(format string, args ...any) {
	g.notes = append(g.notes, fmt.Sprintf(format, args...))
}

func (g *guess) fields(ctx context.Context, db querier) error {
	m := g.m
	textual, times := []string{kindJSON, kindJSONB, kindText, kindVarchar, kindBytea}, []string{kindTime, kindTimestamp}
	m.ID = ref(g.find(idNames))
	if m.ID == "" && len(g.table.key) > 0 {
		m.ID = "{" + quotedName(g.table.key[0]) + "}"
	}
	if m.ID == "" {
		g.notef("id: no column looks like the id of an event. Give a unique column.")
	}
	m.Type, m.Tenant, m.AggregateVersion = ref(g.find(typeNames)), ref(g.find(tenantNames)), ref(g.find(versionNames))
	m.AggregateType, m.AggregateID, m.Key = ref(g.find(kindNames)), ref(g.find(aggregateNames)), ref(g.find(keyNames))
	switch {
	case m.AggregateID != "" && m.AggregateType == "":
		m.AggregateType = "aggregate"
		g.notef(`aggregate_type: no column has it. Write the type that new code uses, for example "order".`)
	case m.AggregateID == "" && m.AggregateType != "":
		m.AggregateType = ""
	}
	if m.AggregateID == "" && m.Key == "" {
		g.notef("key: no column looks like the key of an order. Without aggregate_id or key the events have no order.")
	}
	m.Payload = ref(g.find(payloadNames, textual...))
	if m.Payload == "" {
		g.notef("payload: no column looks like it.")
	}
	m.Metadata = ref(g.find(metadataNames, append(textual, kindHstore)...))
	if err := g.occurred(ctx, db, times); err != nil {
		return err
	}
	g.topic()
	g.order()
	if err := g.unsent(ctx, db); err != nil {
		return err
	}
	return g.known(ctx, db)
}

// unitOf guesses what a number counts since 1970, by its size: the units are a thousand apart, and times are of this age.
const unitOf = `SELECT CASE WHEN v < 1e11 THEN 's' WHEN v < 1e14 THEN 'ms' WHEN v < 1e17 THEN 'us' ELSE 'ns' END FROM (SELECT max(v)::numeric AS v FROM (
	SELECT %s AS v FROM %s LIMIT 1000) x) y WHERE v IS NOT NULL`

// occurred guesses the time, which may be a number.
func (g *guess) occurred(ctx context.Context, db querier, times []string) error {
	c := g.find(occurredNames, times...)
	if c == nil {
		c = g.find(occurredNames+" createdms createdatms", numbers()...)
	}
	if g.m.OccurredAt = ref(c); c == nil || slices.Contains(times, c.kind) {
		return nil
	}
	g.m.OccurredAtUnit = "ms"
	err := db.QueryRowContext(ctx, fmt.Sprintf(unitOf, ident(c.name), g.table.sql()), pgx.QueryExecModeExec).Scan(&g.m.OccurredAtUnit)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return wrap("look at a time", err)
	}
	g.notef("occurred_at_unit: guessed from the size of the numbers. --dry-run shows the times.")
	return nil
}

func (g *guess) topic() {
	switch m := g.m; {
	case g.find(topicNames) != nil:
		m.Topic = ref(g.find(topicNames))
	case m.AggregateType != "" && m.AggregateType != "aggregate":
		m.Topic = m.AggregateType
		g.notef(`topic: it is the type of the aggregate. A prefix may stand before it: "shop.%s".`, m.AggregateType)
	default:
		m.Topic = "events"
		g.notef("topic: no column looks like it. Write the topic that consumers read.")
	}
}

func (g *guess) order() {
	integers, times := []string{"int2", "int4", "int8", "numeric"}, []string{kindTime, kindTimestamp}
	first := g.find(orderNames, integers...)
	id := g.find(idNames)
	switch {
	case first != nil:
		g.m.Order = []string{first.name}
	case id != nil && slices.Contains(integers, id.kind):
		g.m.Order = []string{id.name}
	default:
		for _, c := range []*column{g.find(occurredNames, times...), id} {
			if c != nil {
				g.m.Order = append(g.m.Order, c.name)
			}
		}
		g.notef("order: no column is a sequence. Check that rows were written in the order of these columns.")
	}
}

// unsent guesses by which column sent rows are known.
func (g *guess) unsent(ctx context.Context, db querier) error {
	sentAt := g.find(sentAtNames, kindTime, kindTimestamp)
	flag, status := g.find(flagNames, "bool"), g.find(statusNames)
	if status != nil && (status.kind == kindJSON || status.kind == kindJSONB) {
		status = nil
	}
	g.m.Mark, g.m.Unsent = map[string]any{}, map[string]any{}
	switch {
	case status != nil:
		if err := g.status(ctx, db, status); err != nil {
			return err
		}
	case sentAt != nil:
		g.m.Unsent[sentAt.name] = nil
	case flag != nil:
		g.m.Unsent[flag.name] = false
		if !flag.notNull {
			g.m.Unsent[flag.name] = []any{false, nil}
		}
	default:
		g.m.Delete = true
		g.notef("delete: no column says which rows were sent. So each row counts as unsent, and is deleted when it was moved.")
	}
	if g.m.Delete {
		return nil
	}
	if sentAt != nil {
		g.m.Mark[sentAt.name] = now
	}
	if flag != nil {
		g.m.Mark[flag.name] = true
	}
	return nil
}

// listValues lists the values of a status: the labels of its type, if that is an enumeration, and what the first rows have.
const listValues = `SELECT label FROM (
	SELECT e.enumlabel::text AS label FROM pg_attribute a JOIN pg_enum e ON e.enumtypid = a.atttypid WHERE a.attrelid = $1::regclass AND a.attname = $2
	UNION SELECT DISTINCT v::text FROM (SELECT %s AS v FROM %s LIMIT 10000) rows WHERE v IS NOT NULL) x ORDER BY 1 LIMIT 50`

// status guesses which values of a status mean unsent, and which one means sent.
func (g *guess) status(ctx context.Context, db querier, c *column) error {
	text := fmt.Sprintf(listValues, ident(c.name), g.table.sql())
	there, err := pgsql.Collect(pgsql.QueryPlain(ctx, db, text, pgx.QueryExecModeExec, g.table.sql(), c.name),
		func(scan pgsql.Scan, v *string) error { return scan(v) })
	if err != nil {
		return wrap("read the values of "+c.name, err)
	}
	is := func(words string) (list []any) {
		for word := range strings.FieldsSeq(words) {
			for _, v := range there {
				if strings.EqualFold(v, word) {
					list = append(list, v)
				}
			}
		}
		return list
	}
	unsent := is(unsentValues)
	sent := is(sentValues)
	if len(unsent) == 0 {
		unsent = []any{"pending"}
	}
	if len(sent) == 0 {
		sent = []any{"sent"}
	}
	g.notef("unsent: %s has the values %s. Check which of them mean that a row is to be published, and which one means that it was.", c.name,
		strings.Join(append([]string{}, there...), ", "))
	g.m.Unsent[c.name], g.m.Mark[c.name] = unsent, sent[0]
	return nil
}
