package outbox

import (
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Row is an outbox row: the envelope plus the state of its delivery.
type Row struct {
	event.Envelope
	Lane       int16
	RetryCount int // refusals so far
	Crashes    int // projectors that died over it so far
	CreatedAt  time.Time

	// Waits says that NotBefore lies ahead, Expired that ExpiresAt has passed, both by the database's clock when the row
	// was read.
	Waits, Expired bool
	// Key is the ordering key as stored, "" for an unordered row.
	Key string
	// Cut says that the row, and what follows it in its lane, did not fit into the bound of its fetch. It has no payload.
	Cut bool

	size    int    // of the payload
	encoded string // the metadata of an event that is stored
}

// rowColumns are the columns that scanRow takes, of a relation that has those of "outbox". rowEnd follows the payload, or what stands in its place.
const (
	rowColumns = `{columns}` + rowEnd
	rowEnd     = `,
	coalesce(not_before > clock_timestamp(), false), coalesce(expires_at <= clock_timestamp(), false)`
)

// scanRow reads the columns of rowColumns into r, and what follows them into more.
func scanRow(scan pgsql.Scan, r *Row, more ...any) error {
	dest := make([]any, 0, len(columns)+2+len(more))
	for i := range columns {
		dest = append(dest, columns[i].target(r))
	}
	dest = append(append(dest, &r.Waits, &r.Expired), more...)
	err := scan(dest...)
	r.Delivery.OrderingKey = envelope.GivenKey(r.Key, r.AggregateID, r.ID)
	return err
}

func scanRows(rows *pgsql.Rows) ([]Row, error) {
	return pgsql.Collect(rows, func(scan pgsql.Scan, r *Row) error { return scanRow(scan, r) })
}

// scanBounded is scanRows for a bounded read.
func scanBounded(rows *pgsql.Rows, t *taking) ([]Row, error) {
	return pgsql.Collect(rows, func(scan pgsql.Scan, r *Row) error {
		more := []any{&r.size}
		var held bool
		if t != nil {
			more = append(more, &held, &t.mark.Seq, &t.mark.XID, &t.mark.Xmin)
		}
		err := scanRow(scan, r, more...)
		if held {
			t.held[r.Lane] = true
		}
		return err
	})
}
