package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

// A mail and a local effect: the first try fails between the two, and the second one does not send the mail again.
func ExampleStepInUnit() {
	ctx := context.Background()
	db, closeDB := exampleDatabase(ctx)
	defer closeDB()
	quiet := slog.New(slog.DiscardHandler)
	must(migrations.Up(ctx, db, &migrations.Config{Logger: quiet}))
	_, err := db.ExecContext(ctx, "CREATE TABLE told (customer text)")
	must(err)
	mail := mailServer()
	defer mail.Close()

	units := uow.New(db, nil)
	box := inbox.New(units, nil)
	down := true
	welcome := box.WrapLeased("welcome", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		id, err := step.Call(ctx, "mail", func(ctx context.Context, key string) (string, error) {
			return send(ctx, mail.URL, key, "welcome, "+m.AggregateID)
		})
		if err != nil {
			return err
		}
		fmt.Println("the mail is", id)
		if down {
			return errors.New("the process dies, or something else fails")
		}
		return inbox.StepInUnit(ctx, "told", func(ctx context.Context, u *uow.Unit) error {
			_, err := u.DB().NewRaw("INSERT INTO told VALUES (?)", m.AggregateID).Exec(ctx)
			return err
		})
	}))

	registered := messaging.NewMessage(event.Envelope{
		ID: "4711", Type: "registered", Source: "shop", Topic: "customer", AggregateType: "customer", AggregateID: "ada",
	}, 1, nil)
	fmt.Println("failed:", welcome.Handle(ctx, registered) != nil)
	down = false
	must(welcome.Handle(ctx, registered))
	must(welcome.Handle(ctx, registered)) // a copy
	// Output:
	// sending "welcome, ada"
	// the mail is mail-1
	// failed: true
	// the mail is mail-1
}

// The handler decides and emits a command in its transaction; another one does nothing but send. Whatever becomes of the mail,
// the order is handled once, and no transaction waits for a mail server.
func ExampleInbox_WrapLeased() {
	ctx, stop := context.WithCancel(context.Background())
	db, closeDB := exampleDatabase(ctx)
	defer closeDB()
	relayed := make(chan error)
	defer func() { stop(); must(<-relayed) }()
	quiet := slog.New(slog.DiscardHandler)
	must(migrations.Up(ctx, db, &migrations.Config{Logger: quiet}))
	mail := mailServer()
	defer mail.Close()

	store := outbox.NewStore(db, nil)
	units := uow.New(db, &uow.Config{Source: "shop"}, store)
	box := inbox.New(units, nil)
	orders := box.Wrap("orders", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		unit := uow.MustFromContext(ctx)
		return unit.Add("mail", []byte("thank you"))
	}))
	sent := make(chan struct{})
	mails := box.WrapLeased("mails", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		_, err := step.Call(ctx, "send", func(ctx context.Context, key string) (string, error) {
			return send(ctx, mail.URL, key, string(m.Payload))
		})
		if err == nil {
			close(sent)
		}
		return err
	}))
	relay, err := projector.New(messaging.Direct(mails), nil, store)
	must(err)
	go func() { relayed <- relay.Run(ctx) }()

	placed := messaging.NewMessage(event.Envelope{ID: "4711", Type: "placed", Source: "shop", Topic: "order"}, 1, nil)
	must(orders.Handle(ctx, placed))
	must(orders.Handle(ctx, placed)) // a copy
	select {
	case <-sent:
	case <-time.After(30 * time.Second):
	}
	// Output: sending "thank you"
}

// mailServer sends each mail once per key.
func mailServer() *httptest.Server {
	ids := map[string]string{}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if _, known := ids[key]; !known {
			ids[key] = fmt.Sprint("mail-", len(ids)+1)
			fmt.Printf("sending %q\n", r.Header.Get("Subject"))
		}
		fmt.Fprint(w, ids[key])
	}))
}

func send(ctx context.Context, url, key, subject string) (id string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Subject", subject)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	_, err = fmt.Fscan(answer.Body, &id)
	return id, err
}
