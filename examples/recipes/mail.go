package recipes

import (
	"context"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

// The outcomes of a mail.
const (
	sent    = "sent"
	unclear = "unclear" // it may have been sent
)

// Connect does all with which a mail server can refuse a mail before it has the text: the connection, the sender, the recipient. The function that it
// returns sends the text.
type Connect func(ctx context.Context) (send func(ctx context.Context, text string) error, err error)

// ConsumeMails sends a mail for each reservation that is paid. A mail server knows no keys, so it cannot recognize a mail that is sent again.
func ConsumeMails(app *oncebox.App, connect Connect) {
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e ReservationPaid) error {
		outcome, err := atMostOnce(ctx, connect, e.ID+" is paid")
		if err != nil {
			return err
		}
		return inbox.StepInUnit(ctx, "note", func(ctx context.Context, u *uow.Unit) error {
			_, err := u.DB().NewRaw("INSERT INTO mails (message_key, reservation, outcome) VALUES (?, ?, ?)", inbox.Key(ctx), e.ID, outcome).Exec(ctx)
			return err
		})
	})
	app.Consume("reservation", "mails", router, inbox.Leased())
}

// atMostOnce sends a text that must not be sent twice. While the server is away, it returns an error, so that the message is tried again.
func atMostOnce(ctx context.Context, connect Connect, text string) (outcome string, err error) {
	var send func(ctx context.Context, text string) error // nil: an earlier try has begun
	err = inbox.StepInUnit(ctx, "begin", func(ctx context.Context, _ *uow.Unit) (err error) {
		send, err = connect(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	return step.Call(ctx, "send", func(ctx context.Context, _ string) (string, error) {
		if send == nil {
			return unclear, nil // that try has ended between the COMMIT of "begin" and the storing of its result
		}
		if err := send(ctx, text); err != nil {
			return unclear, nil //nolint:nilerr // an error would send again
		}
		return sent, nil
	})
}
