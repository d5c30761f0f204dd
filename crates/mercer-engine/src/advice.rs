//! What messages advise, as values: each face of the library spells it as its own option.

/// Makes [`Advice`] and the macro `advice!` of one table: the phrase of each in messages, and the option that follows it.
macro_rules! table {
    ($d:tt $($name:ident: $phrase:literal => $option:literal $(= $value:literal)?;)*) => {
        /// Something that a message tells the user to do. The message holds its phrase; a program or a package adds its own option.
        ///
        /// ```
        /// use mercer_engine::Advice;
        /// let message = "there is no CUDA device; use the CPU";
        /// let spelled = Advice::spell(message, |advice| advice.option().0.to_string());
        /// assert_eq!(spelled, "there is no CUDA device; use the CPU (device)");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Advice {
            $(#[doc = concat!("\"", $phrase, "\"")] $name,)*
        }

        impl Advice {
            /// All of them.
            pub const ALL: &[Advice] = &[$(Advice::$name),*];

            /// Its words in messages.
            pub const fn phrase(self) -> &'static str {
                match self {
                    $(Advice::$name => $phrase,)*
                }
            }

            /// The option to set, and its value where there is only one that follows the advice.
            pub const fn option(self) -> (&'static str, Option<&'static str>) {
                match self {
                    $(Advice::$name => ($option, table!(@value $($value)?)),)*
                }
            }
        }

        /// The words of an [`Advice`](crate::Advice), as a literal: for messages.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! advice {
            $(($name) => { $phrase };)*
        }
    };
    (@value) => { None };
    (@value $value:literal) => { Some($value) };
}

table! { $
    UseCpu: "use the CPU" => "device" = "cpu";
    Krylov: "the Krylov method" => "method" = "krylov";
    Nystrom: "the Nyström method" => "method" = "nystrom";
    LargerTolerance: "a larger tolerance" => "tolerance";
    MoreIterations: "more iterations" => "iterations";
    HigherRank: "a preconditioner of higher rank" => "rank";
    LargerAlpha: "a larger α" => "alpha";
    Landmarks: "landmarks stand for them" => "rank";
    ConjugateGradients: "solve by conjugate gradients" => "solver" = "cg";
    SinglePrecision: "use single precision" => "precision" = "f32";
    MoreMemory: "a larger memory budget" => "memory";
    Resume: "training can resume from it" => "resume";
    ContinueRun: "continue that run" => "resume";
    Overwrite: "allow its checkpoint to be replaced" => "overwrite";
    NameClasses: "name the column that holds the classes" => "target";
    NameTarget: "if one of them is the target, name it" => "target";
    Impute: "impute missing values" => "missing" = "impute";
    TakeAsCategory: "take the column as a category" => "categories";
    LeaveOut: "leave the column out" => "drop";
    SetHeader: "set the header option" => "header" = "yes";
    Logistic: "logistic regression on features" => "loss" = "logistic";
    TakeClasses: "take whole numbers as classes" => "classify";
    RenameTensors: "rename the file's tensors" => "rename" = "old=new";
    NameNetwork: "name the network beside the file" => "net";
}

impl Advice {
    /// The message with the option of each advice in it in brackets, as `option` spells it.
    pub fn spell(message: &str, option: impl Fn(Advice) -> String) -> String {
        Advice::ALL.iter().fold(message.to_owned(), |message, advice| {
            let phrase = advice.phrase();
            if !message.contains(phrase) {
                return message;
            }
            message.replace(phrase, &format!("{phrase} ({})", option(*advice)))
        })
    }
}
