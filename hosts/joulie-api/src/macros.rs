//! Macros for the types of objects: structs whose fields may all be missing, and closed lists of words.

/// A part of an object of which every field may be missing.
///
/// `name: Type` becomes an `Option`, which is left out when it is empty. A field that is applied as `null` would be
/// owned by the writer, and objects of other generations lack some of the fields.
macro_rules! part {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
        }
    ) => {
        // A derive must come before the attributes that belong to it.
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, kube::KubeSchema)]
        #[serde(rename_all = "camelCase")]
        $(#[$meta])*
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )*
        }
    };
}

/// A closed list of words.
macro_rules! vocabulary {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$word_meta:meta])* $word:ident = $text:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$word_meta])* $word,)*
        }

        impl $crate::word::Vocabulary for $name {
            const ALL: &'static [Self] = &[$(Self::$word),*];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                }
            }
        }
    };
}

pub(crate) use {part, vocabulary};
