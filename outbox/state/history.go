package state

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// eventsByAggregate reads the columns of Record, and not all of the view: a newer build may have added some.
func eventsByAggregate(db *bun.DB) string {
	var columns []string
	for _, f := range db.Table(reflect.TypeFor[Record]()).Fields {
		columns = append(columns, f.Name)
	}
	return `
SELECT ` + strings.Join(columns, ", ") + ` FROM {schema}.outbox_messages
WHERE tenant_id = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND sequence > $4 ORDER BY sequence LIMIT $5`
}

// EventsByAggregate returns what one aggregate has announced, in the order of the sequence, whether it was published,
// waits, or is dead. tenant "" is outbox.Config.DefaultTenantID. A page has at most limit events (0: 100) and begins
// after the sequence of the last one of the page before (0: from the start).
//
// It goes back as far as outbox.Config.Retention. Published rows have no index on the aggregate, because it would make
// every publication slower: a page reads all rows that are kept, about a second per million rows once they are in
// memory. docs/recipes.md shows how to make the index if histories are asked for often; with it a page takes milliseconds.
func (s *Reader) EventsByAggregate(ctx context.Context, tenant, aggregateType, aggregateID string, after int64, limit int) ([]Record, error) {
	if tenant == "" {
		tenant = s.box.DefaultTenantID
	}
	if limit <= 0 {
		limit = 100
	}
	err := errors.Join(
		event.ValidateIdentifier("tenant", tenant),
		event.ValidateIdentifier("aggregateType", aggregateType),
		event.ValidateIdentifier("aggregateID", aggregateID))
	if aggregateID == "" {
		err = errors.New("aggregateID is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("outbox: EventsByAggregate: %w", err)
	}
	rows := s.box.AdHoc().Query(ctx, s.box.DB, eventsByAggregate(s.box.DB), tenant, aggregateType, aggregateID, after, limit)
	defer func() { _ = rows.Close() }()
	if err := rows.Err(); err != nil {
		return nil, outboxdb.Wrap("read the events of an aggregate", err)
	}
	var out []Record
	if err := s.box.DB.ScanRows(ctx, rows.Rows, &out); err != nil {
		return nil, outboxdb.Wrap("read the events of an aggregate", err)
	}
	return out, outboxdb.Wrap("read the events of an aggregate", rows.Err())
}
