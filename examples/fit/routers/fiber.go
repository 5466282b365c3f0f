package routers

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"github.com/oncebox/oncebox/httpmw/fasthttpmw"
)

// Fiber puts a middleware around one handler. The handler finds its unit in c.UserContext().
func Fiber(middleware Middleware, handler fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		outer := c.UserContext()
		defer c.SetUserContext(outer)
		return fasthttpmw.Serve(outer, c.Context(), c.Route().Path, middleware, func(ctx context.Context) error {
			c.SetUserContext(ctx)
			return handler(c)
		}, func(err error) error { return c.App().ErrorHandler(c, err) })
	}
}
