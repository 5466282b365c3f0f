package inbox

import (
	"context"
	"errors"
	"fmt"
)

// ActionEdit is the action of the audit for [Inbox.ReplayEdited].
const ActionEdit = "edit"

// editDead gives the dead letters with the keys $1 to $4 another payload.
const editDead = `UPDATE {schema}.inbox_dead d SET payload = $5::bytea FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) u(m, c, t, s)
WHERE d.message_key = u.m AND d.consumer = u.c AND d.tenant_id = u.t AND d.source = u.s`

// ReplayEdited is [Inbox.Replay] with another payload in the place of the one that came, in one transaction. All else of the message
// stays, and other consumers keep what they got. The former payload is gone. by must give a reason. An empty payload is an error, and so
// is one that is larger than Config.MaxPayload.
func (i *Inbox) ReplayEdited(ctx context.Context, key MessageRef, payload []byte, by By) error {
	if err := i.checkEdited(payload); err != nil {
		return fmt.Errorf("inbox: edit %s of consumer %s: %w", key.MessageKey, key.Consumer, err)
	}
	return i.actOnOne(ctx, deed{action: ActionEdit, move: replayDead, by: by, payload: payload}, key)
}

func (i *Inbox) checkEdited(payload []byte) error {
	switch most := i.cfg.MaxPayload; {
	case len(payload) == 0:
		return errors.New("the payload is empty")
	case most >= 0 && len(payload) > most:
		return fmt.Errorf("the payload has %d bytes, and Config.MaxPayload is %d", len(payload), most)
	default:
		return nil
	}
}
