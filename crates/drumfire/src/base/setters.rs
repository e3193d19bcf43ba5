//! The methods of configurations that set one field each.

/// Implements such methods: `field(argument: Type) = value;` sets the field to the value.
macro_rules! setters {
    ($config:ty: $($(#[$attribute:meta])* $field:ident($argument:ident: $of:ty) = $value:expr;)*) => {
        impl $config {
            $(
                $(#[$attribute])*
                #[must_use]
                pub fn $field(mut self, $argument: $of) -> Self {
                    self.$field = $value;
                    self
                }
            )*
        }
    };
}

pub(crate) use setters;
