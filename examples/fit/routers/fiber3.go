package routers

import (
	"context"

	"github.com/gofiber/fiber/v3"

	"github.com/oncebox/oncebox/httpmw/fasthttpmw"
)

// Fiber3 puts a middleware around one handler. The handler finds its unit in c.Context().
func Fiber3(middleware Middleware, handler fiber.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		outer := c.Context()
		defer c.SetContext(outer)
		return fasthttpmw.Serve(outer, c.RequestCtx(), c.Route().Path, middleware, func(ctx context.Context) error {
			c.SetContext(ctx)
			return handler(c)
		}, func(err error) error { return c.App().ErrorHandler(c, err) })
	}
}
