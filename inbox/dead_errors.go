package inbox

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// DeadError is why one dead letter was given up.
type DeadError struct {
	// DiedAt is when it was given up, by the clock of the database.
	DiedAt time.Time
	// Consumer is the one that gave it up. TenantID, Topic and Type are those of the message.
	Consumer, TenantID, Topic, Type string
	// Error is the beginning of [DeadLetter.Error], 300 characters at most.
	Error string
}

const listDeadErrors = `
SELECT d.died_at, d.consumer, d.tenant_id, d.topic, d.event_type, left(d.error_message, 300)
FROM {schema}.inbox_dead d ORDER BY d.died_at DESC, d.message_key DESC LIMIT $1::int`

// DeadErrors lists why the latest dead letters were given up, the newest first: at most limit of them (0: 100). It reads no more
// rows than that, however many dead letters there are.
func (i *Inbox) DeadErrors(ctx context.Context, limit int) ([]DeadError, error) {
	if limit <= 0 {
		limit = defaultPage
	}
	list, err := pgsql.Collect(i.adHoc().Query(ctx, i.units.DB(ctx), listDeadErrors, limit), func(scan pgsql.Scan, d *DeadError) error {
		return scan(&d.DiedAt, &d.Consumer, &d.TenantID, &d.Topic, &d.Type, &d.Error)
	})
	return list, wrapErr("list the errors of dead letters", err)
}
