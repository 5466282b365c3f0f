package recipes

import (
	"context"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// The outcomes of a mail.
const (
	sent    = "sent"
	unclear = "unclear" // it may have been sent
)

// ConsumeMails sends a mail for each reservation that is paid. A mail server knows no keys, so it cannot recognize a mail that is sent again.
func ConsumeMails(app *oncebox.App, send func(ctx context.Context, text string) error) {
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e ReservationPaid) error {
		outcome, err := atMostOnce(ctx, func(ctx context.Context) error { return send(ctx, e.ID+" is paid") })
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

// atMostOnce makes a call that must not be repeated.
func atMostOnce(ctx context.Context, call func(context.Context) error) (outcome string, err error) {
	begun := true // by an earlier try
	err = inbox.StepInUnit(ctx, "begin", func(context.Context, *uow.Unit) error {
		begun = false
		return nil
	})
	if err != nil {
		return "", err
	}
	return inbox.Step(ctx, "call", func(ctx context.Context, _ string) (string, error) {
		if begun {
			return unclear, nil // that try has ended between the COMMIT of "begin" and the storing of its result
		}
		if err := call(ctx); err != nil {
			return unclear, nil //nolint:nilerr // an error would call again
		}
		return sent, nil
	})
}
