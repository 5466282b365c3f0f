package outbox

import (
	"context"
	"time"
)

// DeadError is why one dead letter was given up.
type DeadError struct {
	// DiedAt is when it was given up, by the clock of the database.
	DiedAt time.Time
	// TenantID, Topic and Type are those of the event.
	TenantID, Topic, Type string
	// Error is the beginning of [DeadLetter.Error], 300 characters at most.
	Error string
}

const listDeadErrors = `
SELECT d.died_at, d.tenant_id, d.topic, d.event_type, left(coalesce(d.error_message, ''), 300)
FROM {schema}.outbox_dead d ORDER BY d.died_at DESC, d.seq DESC LIMIT $1::int`

// DeadErrors lists why the latest dead letters were given up, the newest first: at most limit of them (0: 100). It reads no more
// rows than that, however many dead letters there are.
func (s *Store) DeadErrors(ctx context.Context, limit int) ([]DeadError, error) {
	if limit <= 0 {
		limit = defaultPage
	}
	rows, err := s.adHoc().Query(ctx, s.db, listDeadErrors, limit)
	if err != nil {
		return nil, wrap("list the errors of dead letters", err)
	}
	defer rows.Close()
	var list []DeadError
	for rows.Next() {
		var d DeadError
		if err := rows.Scan(&d.DiedAt, &d.TenantID, &d.Topic, &d.Type, &d.Error); err != nil {
			return nil, wrap("list the errors of dead letters", err)
		}
		list = append(list, d)
	}
	return list, wrap("list the errors of dead letters", rows.Err())
}
