package recipes

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/serve"
)

// Settings are the settings of the service tickets: the variables that begin with TICKETS_.
type Settings struct {
	// ProviderURL is the address of the payment provider. Required.
	ProviderURL string `env:"PROVIDER_URL,notEmpty"`
	// Timeout is how long the provider may take to answer. Default: 10s.
	Timeout time.Duration `env:"TIMEOUT" envDefault:"10s"`
	// Tenants are the bearer tokens of the tenants: token:tenant, separated by commas. Required.
	Tenants httpmw.BearerTokens `env:"TENANTS,notEmpty"`
}

// Tickets returns the service. A test passes settings of its own.
func Tickets(settings Settings) serve.Service {
	return serve.Service{
		Source: "tickets", Migrate: serve.Tables(ticketTables),
		Setup: func(_ context.Context, app *oncebox.App) (http.Handler, error) {
			event.RegisterAll(app.Registry, ReservationMade{}, ReservationPaid{}, HoldEnded{})
			p := &Payments{App: app, Charge: provider{settings.ProviderURL, &http.Client{Timeout: settings.Timeout}}.charge}
			p.ConsumeHolds()
			p.ConsumeSales()
			return PaymentRoutes(p, settings.Tenants), nil
		},
	}
}

const ticketTables = `
CREATE TABLE IF NOT EXISTS reservations (tenant_id text, id text, status text NOT NULL, attempt int NOT NULL, token text NOT NULL, version bigint NOT NULL,
	PRIMARY KEY (tenant_id, id));
CREATE TABLE IF NOT EXISTS sales (tenant_id text PRIMARY KEY, paid bigint NOT NULL)`

// RunTickets is the main of the service.
func RunTickets() { serve.MainWith("TICKETS_", Tickets, pulsar.Kind()) }

// provider is a payment provider that recognizes keys.
type provider struct {
	url    string
	client *http.Client
}

// charge asks the provider. An error means that there is no answer yet.
func (p provider) charge(ctx context.Context, key string) (accepted bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/charges", http.NoBody)
	if err != nil {
		return false, err
	}
	r.Header.Set("Idempotency-Key", key)
	answer, err := p.client.Do(r)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK, http.StatusCreated:
		return true, nil
	case http.StatusPaymentRequired:
		return false, nil
	}
	return false, fmt.Errorf("payment provider: %s", answer.Status)
}
