package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/internal/envelope"
)

// ActionEdit is the action of the audit for [Store.ReplayEdited].
const ActionEdit = "edit"

// editDead gives the dead letter at $1, $2 another payload.
const editDead = `UPDATE {schema}.outbox_dead d SET payload = $3::bytea FROM unnest($1::smallint[], $2::bigint[]) a(lane, seq)
WHERE d.lane = a.lane AND d.seq = a.seq`

// ReplayEdited is [Store.Replay] with another payload in the place of the one that was stored, in one transaction; all else of the
// event stays, its id too. The former payload is gone. It is for an event that nobody has got: a consumer that got it under this id
// already, because a receipt was lost, keeps what it has. by must give a reason. An empty payload is an error, and so is one
// that is larger than Config.MaxPayload.
func (s *Store) ReplayEdited(ctx context.Context, id string, payload []byte, by By, opts ...DeadOption) error {
	if err := s.checkEdited(payload); err != nil {
		return fmt.Errorf("outbox: edit %s: %w", id, err)
	}
	return s.actOnOne(ctx, deed{action: ActionEdit, move: replayDead, by: by, payload: payload}, id, opts)
}

func (s *Store) checkEdited(payload []byte) error {
	switch most := cmp.Or(s.cfg.MaxPayload, envelope.DefaultMaxPayload); {
	case len(payload) == 0:
		return errors.New("the payload is empty")
	case most >= 0 && len(payload) > most:
		return fmt.Errorf("the payload has %d bytes, and Config.MaxPayload is %d", len(payload), most)
	default:
		return nil
	}
}
