package recipes

import (
	"context"
	"net/http"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw/httpjson"
	"github.com/oncebox/oncebox/messaging"
)

// ConsumeSales counts the paid reservations of each tenant, in a read model.
func (p *Payments) ConsumeSales() {
	router := messaging.NewRouter(p.App.Registry)
	messaging.Handle(router, func(ctx context.Context, _ ReservationPaid) error {
		_, err := p.App.UoW.DB(ctx).NewRaw(`INSERT INTO sales VALUES (?, 1)
			ON CONFLICT (tenant_id) DO UPDATE SET paid = sales.paid + 1`, event.TenantFrom(ctx)).Exec(ctx)
		return err
	})
	router.Ignore("reservation.made")
	p.App.Consume("reservation", "sales", router)
}

func (p *Payments) sales(r *http.Request, _ httpjson.Nothing) (n int, err error) {
	err = p.App.UoW.DB(r.Context()).NewRaw("SELECT coalesce(sum(paid), 0) FROM sales WHERE tenant_id = ?", event.TenantFrom(r.Context())).
		Scan(r.Context(), &n)
	return n, err
}
