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
type Connect func(ctx context.Context) (send func(text string) error, err error)

// ConsumeMails sends a mail for each reservation that is paid. A mail server knows no keys, so it cannot recognize a mail that is sent again.
func ConsumeMails(app *oncebox.App, connect Connect) {
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e ReservationPaid) error {
		outcome, err := step.AtMostOnce(ctx, "mail", unclear, func(ctx context.Context) (func() (string, error), error) {
			send, err := connect(ctx)
			return func() (string, error) { return sent, send(e.ID + " is paid") }, err
		})
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
