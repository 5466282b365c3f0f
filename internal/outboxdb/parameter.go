package outboxdb

import (
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// parameter returns what a statement gets for a field of a row, in a column of the type. pgx copies what a plain pointer or value refers to into an object
// of its own. The types below say themselves what they hold, and are pointers to the row, so these parameters cost no object. Other drivers follow the
// pointers.
func parameter[T any](typ string, field *T) any {
	switch f := any(field).(type) {
	case *string:
		if typ == "uuid" {
			return (*identity)(f)
		}
		return (*text)(f)
	case *[]byte:
		return (*octets)(f)
	case *int64:
		return (*number)(f)
	case *time.Time:
		return (*moment)(f)
	default:
		return *field
	}
}

type text string

// TextValue implements [pgtype.TextValuer].
func (t *text) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(*t), Valid: true}, nil
}

type identity string

// UUIDValue implements [pgtype.UUIDValuer].
func (i *identity) UUIDValue() (pgtype.UUID, error) {
	id, err := uuid.Parse(string(*i))
	if err != nil {
		return pgtype.UUID{}, fmt.Errorf("event id %q: %w", string(*i), err)
	}
	return pgtype.UUID{Bytes: id, Valid: true}, nil
}

type octets []byte

// BytesValue implements [pgtype.BytesValuer].
func (o *octets) BytesValue() ([]byte, error) { return *o, nil }

type number int64

// Int64Value implements [pgtype.Int64Valuer].
func (n *number) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*n), Valid: true}, nil
}

type moment time.Time

// TimestamptzValue implements [pgtype.TimestamptzValuer].
func (m *moment) TimestamptzValue() (pgtype.Timestamptz, error) {
	return pgtype.Timestamptz{Time: time.Time(*m), Valid: true}, nil
}

// Value implements [driver.Valuer], for other drivers.
func (m *moment) Value() (driver.Value, error) { return time.Time(*m), nil }
