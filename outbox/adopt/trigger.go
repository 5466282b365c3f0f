package adopt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// forwardTrigger is the name of the trigger.
const forwardTrigger = "oncebox_forward"

// forwardName is the name of the function of the trigger and of its view, one for each table.
func forwardName(box, table string) string {
	hash := sha256.Sum256([]byte(table))
	return box + "." + forwardTrigger + "_" + hex.EncodeToString(hash[:8])
}

// dropForward removes the function and the view.
func dropForward(name string) string {
	return fmt.Sprintf("DROP FUNCTION IF EXISTS %[1]s(); DROP VIEW IF EXISTS %[1]s", name)
}

// forward makes the view and the function of the trigger.
//
// The view has the fields of the event of each row. It is there because it refers to the columns of the old table themselves, and not to their names: a
// column or the table may be renamed, and PostgreSQL refuses to drop a column that the trigger needs, or the table. Otherwise each writer would fail.
//
// The function acts with the rights of the role that makes it, because writers of the old table may do nothing else. Therefore it qualifies all names
// (see oncebox_create).
func (p *plan) forward(name, source, tenant string, maxPayload int) string {
	return dropForward(name) + ";\n" + p.forwardView(name) + ";\n" +
		fmt.Sprintf("CREATE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %[2]s;"+
			"REVOKE ALL ON FUNCTION %[1]s() FROM PUBLIC; REVOKE ALL ON %[1]s FROM PUBLIC",
			name, literal(p.forwardBody(name, source, tenant, maxPayload)))
}

// forwardColumns are those of the view that an event is made of, but for the headers.
const forwardColumns = "id, spare, topic, typ, kind, aggregate, version, key, tenant, source, at, payload, metadata, entries"

func (p *plan) forwardView(name string) string {
	e := &p.expr
	own := make([]string, len(p.table.key))
	for i, column := range p.table.key {
		own[i] = "r." + ident(column) + "::text"
	}
	spare := uuidOf(p.table.label()+" key", "concat_ws('|', "+strings.Join(own, ", ")+")")
	list := []string{
		"(" + e.id + ") AS id", "(" + spare + ") AS spare", e.topic + " AS topic", e.typ + " AS typ", e.kind + " AS kind", e.aggregate + " AS aggregate",
		e.version + " AS version", e.key + " AS key", e.tenant + " AS tenant", e.source + " AS source", e.at + " AS at", e.payload + " AS payload",
		e.metadata + " AS metadata", e.entries + " AS entries", "(" + p.unsent + ") AS unsent",
	}
	for i, header := range e.headers {
		list = append(list, fmt.Sprintf("%s AS header%d", header, i))
	}
	for i, column := range p.table.key {
		list = append(list, fmt.Sprintf("r.%s AS key%d", ident(column), i))
	}
	for i, m := range p.mark {
		list = append(list, fmt.Sprintf("r.%s AS mark%d", ident(m.column), i))
	}
	return fmt.Sprintf("CREATE VIEW %s AS SELECT\n\t%s\nFROM %s r", name, strings.Join(list, ",\n\t"), p.table.sql())
}

// forwardBody is the text of the function. If no event can be made of the row, it stores a refused one, see oncebox_add: the writer goes on, and later
// events of the key wait behind a dead letter. Other errors, such as a deadlock, are the writer's.
func (p *plan) forwardBody(name, source, tenant string, maxPayload int) string {
	payload := "x.payload"
	if p.mapping.Base64 {
		payload = "decode(convert_from(x.payload, 'UTF8'), 'base64')"
	}
	metadata, columns := []string{"coalesce(x.entries, '{}')"}, []string{forwardColumns}
	for i, header := range p.headers {
		columns = append(columns, fmt.Sprintf("header%d", i))
		metadata = append(metadata, fmt.Sprintf("jsonb_strip_nulls(jsonb_build_object(%s, x.header%d))", literal(header), i))
	}
	own := make([]string, len(p.table.key))
	for i, column := range p.table.key {
		own[i] = fmt.Sprintf("r.key%d = NEW.%s", i, ident(column))
	}
	add := fmt.Sprintf(`%s.oncebox_add(topic => x.topic, payload => NULL, event_type => x.typ, aggregate_type => x.kind, aggregate_id => x.aggregate,
			tenant_id => coalesce(nullif(x.tenant, ''), %s), ordering_key => x.key, source => coalesce(nullif(x.source, ''), %s), occurred_at => x.at,
			content_type => %s, `, p.box, literal(orDefault(tenant)), literal(source), literal(p.contentType))
	return strings.NewReplacer("{add}", add, "{view}", name, "{columns}", strings.Join(columns, ", "), "{own}", strings.Join(own, " AND "), "{metadata}",
		strings.Join(metadata, " || "),
		"{payload}", payload, "{max}", strconv.Itoa(maxPayload), "{take}", p.forwardTake(name), "{no id}", literal(errNoID.Error()),
		"{no metadata}", literal(errNoMetadata.Error())).Replace(`
DECLARE
	x record;
	reason text;
BEGIN
	BEGIN
		SELECT {columns} INTO x FROM {view} r WHERE {own} AND r.unsent;
		IF NOT FOUND THEN -- the writer has deleted it, or it is no row to publish
			RETURN NULL;
		END IF;
		IF x.id IS NULL THEN
			RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = {no id};
		ELSIF x.metadata IS NOT NULL AND x.entries IS NULL THEN
			RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = {no metadata};
		END IF;
		PERFORM {add}id => x.id, aggregate_version => x.version::bigint, metadata => {metadata}, payload_bytes => {payload}, max_payload => {max});
	EXCEPTION WHEN data_exception THEN
		GET STACKED DIAGNOSTICS reason = MESSAGE_TEXT;
		reason := regexp_replace(reason, '^oncebox_add: ', '');
		SELECT {columns} INTO x FROM {view} r WHERE {own};
		PERFORM {add}id => coalesce(x.id, x.spare), payload_bytes => x.payload, refused => reason, metadata => {metadata} || CASE
			WHEN x.metadata IS NOT NULL AND x.entries IS NULL THEN jsonb_build_object('oncebox.metadata', encode(x.metadata, 'escape')) ELSE '{}' END);
	END;
	{take} WHERE {own};
	RETURN NULL;
END `)
}

// forwardTake deletes or marks rows of the view.
func (p *plan) forwardTake(name string) string {
	if p.mapping.Delete {
		return "DELETE FROM " + name + " r"
	}
	set := make([]string, len(p.mark))
	for i, m := range p.mark {
		set[i] = fmt.Sprintf("mark%d = %s", i, m.value)
	}
	return "UPDATE " + name + " r SET " + strings.Join(set, ", ")
}

func orDefault(tenant string) string {
	if tenant == "" {
		return "default"
	}
	return tenant
}
