package console

import "github.com/oncebox/oncebox/outbox"

// tenantsView is the page of tenants.
type tenantsView struct {
	Moved []outbox.TenantGroup
}

// tenants lists the tenants that have lanes of their own.
func (c *Console) tenants(v *visit) error {
	moved, err := c.cfg.Outbox.Tenants(v.Context())
	if err != nil {
		return err
	}
	return v.show("tenants", "Tenants", &tenantsView{moved})
}
